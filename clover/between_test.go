package clover_test

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// beforeRetire stops before the first request that retires.
type beforeRetire struct {
	rdmacm.Manager
	stop func()
}

func (d *beforeRetire) Dial(qp verbs.QP, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	if f := d.stop; f != nil && bytes.HasPrefix(private, []byte("\x01\x0c")) {
		d.stop = nil
		f()
		deadline = deadline.Add(time.Hour) // the deadline is a hang's; the fault is the time before the request
	}
	return d.Manager.Dial(qp, to, service, p, private, deadline)
}

// hungStart is a metadata server on cn2 whose start hangs before its first request that retires.
type hungStart struct {
	hung, resumed, ended bool
	err                  error
}

// beginHung starts a hungStart, and returns when it hangs.
func (y *copyStory) beginHung(rt verbs.Runtime) *hungStart {
	x := new(hungStart)
	y.beginMeta("cn2", func(m rdmacm.Manager, rt verbs.Runtime) rdmacm.Manager {
		return &beforeRetire{m, func() {
			x.hung = true
			await(rt, &x.resumed)
		}}
	}, func(_ *meta.Server, err error) { x.err, x.ended = err, true }, func() {})
	await(rt, &x.hung)
	return x
}

// outcome lets the start go on, and returns its error.
func (x *hungStart) outcome(rt verbs.Runtime) error {
	x.resumed = true
	await(rt, &x.ended)
	return x.err
}

// A metadata server that starts hangs between its reading of the superblocks and its first request
// that retires. Meanwhile the one before it goes on: ms1 goes out, and comes back with old copies.
func TestThePredecessorChangesTheViewMeanwhile(t *testing.T) {
	for replicas := 2; replicas <= 3; replicas++ {
		y := newCopyStory(t, replicas)
		y.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
			if err := y.write(c, rt, 1); err != nil {
				return err
			}
			y.restartMD(rt)
			started := false
			y.beginMeta("md0", asItIs, func(s *meta.Server, err error) {
				y.server, started = s, err == nil
			}, func() {})
			await(rt, &started)
			if err := y.write(c, rt, 2); err != nil {
				return err
			}
			second := y.beginHung(rt)
			y.Host("ms1").HangAll()
			for y.away() == 0 {
				rt.Sleep(time.Millisecond)
			}
			if err := y.write(c, rt, 3); err != nil {
				return err
			}
			y.Host("ms1").ResumeAll()
			if second.outcome(rt) == nil {
				t.Errorf("%d copies: a metadata server starts with a view that has changed since it read it", replicas)
			}
			rt.Sleep(time.Second)
			y.Host("cn2").CrashApps() // clients ask md0
			y.restartMD(rt)
			y.meta()
			lost, err := y.read(c, rt)
			if lost > 0 {
				t.Errorf("%d copies: %d keys lost", replicas, lost)
			}
			return err
		})
		y.run()
	}
}

// Two metadata servers start on empty memory; one hangs before its first request that retires, the
// other one formats the store and serves.
func TestAStoreIsFormattedMeanwhile(t *testing.T) {
	for replicas := 1; replicas <= 2; replicas++ {
		y := newCopyStory(t, replicas)
		y.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
			y.Host("md0").Crash()
			for _, n := range []string{"ms0", "ms1", "ms2"} {
				y.Host(n).Crash()
			}
			rt.Sleep(10 * time.Millisecond)
			for _, n := range []string{"ms0", "ms1", "ms2"} {
				y.Host(n).Restart()
				y.memory(n)
			}
			rt.Sleep(10 * time.Millisecond)
			y.Host("md0").Restart()
			second := y.beginHung(rt)
			started := false
			y.beginMeta("md0", asItIs, func(s *meta.Server, err error) {
				y.server, started = s, err == nil
			}, func() {})
			await(rt, &started)
			h := y.Host("cn0")
			acked := false
			h.Go("new", false, func(ctx verbs.Context) {
				rt := ctx.Runtime()
				c, err := clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: y.Host("md0").Addr()}, soon(rt))
				if err == nil {
					err = errors.Join(y.write(c, rt, 1), c.Close())
				}
				if err != nil {
					t.Error(err)
				}
				acked = true
			})
			await(rt, &acked)
			if second.outcome(rt) == nil {
				t.Errorf("%d copies: a metadata server formats memory that has got a store since it read it", replicas)
			}
			rt.Sleep(time.Second)
			y.Host("cn2").CrashApps() // clients ask md0
			y.restartMD(rt)
			y.meta()
			done := false
			h.Go("read", false, func(ctx verbs.Context) {
				rt := ctx.Runtime()
				c, err := clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: y.Host("md0").Addr()}, soon(rt))
				lost := 0
				if err == nil {
					lost, err = y.read(c, rt)
				}
				if lost > 0 || err != nil {
					t.Errorf("%d copies: %d keys lost: %v", replicas, lost, err)
				}
				done = true
			})
			await(rt, &done)
			return nil
		})
		y.run()
	}
}
