package clover

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// shut is a dialer that reaches nothing while it is closed, and otherwise takes some time.
type shut struct {
	rdmacm.Dialer
	rt     verbs.Runtime
	closed bool
	takes  time.Duration
}

func (d *shut) Dial(qp verbs.QP, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	if d.closed {
		return nil, verbs.ErrUnreachable
	}
	d.rt.Sleep(d.takes)
	return d.Dialer.Dial(qp, to, service, p, private, deadline)
}

// merged runs clients of one process, which share a Reporter.
func (y *epochStory) merged(clients int, f func(c *Client, id int, way *shut, rt verbs.Runtime) error) {
	h := y.rack.Host("cn0")
	h.Go("process", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		way := &shut{Dialer: h.Manager(ctx), rt: rt}
		cfg := Config{Context: ctx, Manager: way, Meta: y.rack.Host("md0").Addr(), Params: y.params, Batch: 1, Records: 1}
		cfg.Reporter = NewReporter(cfg)
		cfg.Manager = way.Dialer
		for id := range clients {
			rt.Go(fmt.Sprint("client", id), func() {
				c, err := Open(cfg, inTwoMinutes(rt))
				if err == nil {
					err = f(c, id, way, rt)
				}
				if err != nil {
					y.t.Errorf("client %d: %v", id, err)
				}
			})
		}
		rt.Wait()
		if err := cfg.Reporter.Close(); err != nil {
			y.t.Error(err)
		}
	})
	if err := y.rack.Run(); err != nil {
		y.t.Fatal(err)
	}
}

// stats asks the metadata server for its counters.
func (y *epochStory) stats(c *Client, rt verbs.Runtime) rpc.Stats {
	st, err := c.Stats(inTwoMinutes(rt))
	if err != nil {
		y.t.Error(err)
	}
	return st
}

// The metadata server has all reports of a client before the client says goodbye: after that they
// would not count. The Reporter has to connect first.
func TestCloseWaitsForTheReporter(t *testing.T) {
	y := newEpochStoryOn(t, plain)
	y.lease = 10 * time.Second
	y.merged(2, func(c *Client, id int, way *shut, rt verbs.Runtime) error {
		way.takes = 200 * time.Millisecond
		if id == 1 { // it asks for the counters
			rt.Sleep(2 * time.Second)
			if st := y.stats(c, rt); st.Refused > 0 || st.Clients != 1 {
				t.Errorf("counters %+v", st)
			}
			return c.Close()
		}
		err := errors.Join(c.Insert(wornKey, padded("first"), inTwoMinutes(rt)), c.Put(wornKey, padded("second"), inTwoMinutes(rt)))
		return errors.Join(err, c.Close())
	})
}

// unreported makes an append while the Reporter reaches nothing.
func unreported(c *Client, way *shut, rt verbs.Runtime) error {
	way.closed = true
	return errors.Join(c.Insert(wornKey, padded("first"), inTwoMinutes(rt)), c.Put(wornKey, padded("second"), inTwoMinutes(rt)))
}

// The client has too many appends to report, and forgets the oldest one, which may yet arrive: an
// attempt to report it has failed. The epoch of that append stays unconfirmed until the metadata
// server has a later report.
func TestEpochsWaitForForgottenReports(t *testing.T) {
	y := newEpochStoryOn(t, plain)
	y.lease = 10 * time.Second
	y.merged(1, func(c *Client, _ int, way *shut, rt verbs.Runtime) error {
		if err := unreported(c, way, rt); err != nil {
			return err
		}
		for c.session.gc.part != nil {
			rt.Sleep(reportPause)
			c.session.hear()
		}
		c.session.gc.drop(1)
		c.session.lease.epoch++ // as if an answer had announced it
		confirmed := func() bool {
			if _, err := c.session.request(&rpc.Request{Op: rpc.OpBeat}, inTwoMinutes(rt)); err != nil {
				t.Error(err)
			}
			return c.session.lease.confirmed == c.session.lease.epoch
		}
		if confirmed() {
			t.Error("the epoch is confirmed, and a report of the former one may arrive")
		}
		way.closed = false
		if err := c.Put(wornKey, padded("third"), inTwoMinutes(rt)); err != nil {
			return err
		}
		rt.Sleep(20 * time.Millisecond)
		if !confirmed() {
			t.Errorf("the epoch is not confirmed; %d appends are to be reported", len(c.session.gc.records))
		}
		c.session.lease.epoch--
		return c.Close()
	})
}

// A report that was not answered is made again, before later ones. A client confirms no epoch while
// the metadata server may not have its reports of an earlier one: such a report names locations of
// that epoch, which may be other nodes afterwards.
func TestEpochsWaitForReports(t *testing.T) {
	y := newEpochStoryOn(t, plain)
	y.lease = 10 * time.Second
	y.merged(1, func(c *Client, _ int, way *shut, rt verbs.Runtime) error {
		if err := unreported(c, way, rt); err != nil {
			return err
		}
		former := c.session.lease.epoch
		c.session.lease.epoch++ // as if an answer had announced it
		beat := func() uint32 {
			if _, err := c.session.request(&rpc.Request{Op: rpc.OpBeat}, inTwoMinutes(rt)); err != nil {
				t.Error(err)
			}
			return c.session.lease.confirmed
		}
		for range 3 {
			if got := beat(); got != former || len(c.session.gc.records) != 1 {
				t.Errorf("epoch %d is confirmed, and %d appends of epoch %d are to be reported", got, len(c.session.gc.records), former)
			}
			rt.Sleep(3 * reportPause)
		}
		way.closed = false
		for range 3 { // the outcome of the last part is known, another one is sent, and answered
			beat()
			rt.Sleep(20 * time.Millisecond)
		}
		if got := beat(); got != c.session.lease.epoch || len(c.session.gc.records) != 0 {
			t.Errorf("epoch %d is confirmed, and %d appends are to be reported", got, len(c.session.gc.records))
		}
		if c.session.lease.epoch--; c.session.gc.parts < 2 {
			t.Errorf("%d parts", c.session.gc.parts)
		}
		return c.Close()
	})
}
