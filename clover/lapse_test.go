package clover_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
)

// slowDialer delays the connection to a memory server.
type slowDialer struct {
	rdmacm.Dialer
	rt    verbs.Runtime
	takes time.Duration
	done  func()
}

func (d *slowDialer) Dial(qp verbs.QP, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	if service == memservice.Service {
		d.rt.Sleep(d.takes)
		defer d.done()
	}
	return d.Dialer.Dial(qp, to, service, p, private, deadline)
}

// lapse counts the WRITEs and compare-and-swaps that a host sends after its lease has ended and
// before its next request to the metadata server.
type lapse struct {
	simnet.Node
	port  int
	ended bool
	late  int
}

func (l *lapse) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	var g wire.Frame
	if port == l.port && l.ended && wire.ParseFrame(f.Data, &g) == nil {
		switch g.BTH.Opcode {
		case wire.RCSendOnly:
			l.ended = false
		case wire.RCWriteOnly, wire.RCCmpSwap:
			l.late++
		}
	}
	l.Node.Frame(now, port, f, out)
}

// It takes the client longer than lease and grace to connect to a memory server. By then the
// client's node may belong to another client, and this client must not write it.
func TestNothingIsWrittenAfterTheLease(t *testing.T) {
	const lease, grace, key = 100 * time.Millisecond, 50 * time.Millisecond, 7
	l := &lapse{port: 3}
	g := newRig(t, simrack.Options{Wrap: atSwitch(func(n simnet.Node) simnet.Node {
		l.Node = n
		return l
	})}, meta.Config{Lease: lease, Grace: grace, Keys: 16}, region)
	h := g.Host("cn0")
	h.Go("client", false, func(ctx verbs.Context) {
		d := &slowDialer{Dialer: h.Manager(ctx), rt: ctx.Runtime(), takes: 4 * lease, done: func() { l.ended = true }}
		c, err := clover.Open(clover.Config{Context: ctx, Manager: d, Meta: g.Host("md0").Addr()}, soon(d.rt))
		if err == nil {
			err = errors.Join(c.Insert(key, value(key, 0, 40), soon(d.rt)), c.Close())
		}
		if err != nil {
			t.Error(err)
		}
	})
	g.run()
	if l.late > 0 {
		t.Errorf("%d nodes or headers were written after the lease", l.late)
	}
}

// A client whose buffer holds only short values reports a long one at once, and finds the short one
// that has replaced it.
func TestLongValueForASmallClient(t *testing.T) {
	const key, small = 7, 100
	g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 16}, region)
	step := 0
	wait := func(rt verbs.Runtime, n int) {
		for ; step < n; rt.Sleep(time.Millisecond) {
		}
	}
	g.client("cn1", func(c *clover.Client, rt verbs.Runtime) error {
		for n, size := range []int{small, 3000, 2000, small} {
			wait(rt, 2*n)
			put := c.Put
			if n == 0 {
				put = c.Insert
			}
			if err := put(key, value(key, n, size), soon(rt)); err != nil {
				return err
			}
			step++
		}
		return nil
	})
	h := g.Host("cn0")
	h.Go("client", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		c, err := clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: g.Host("md0").Addr(), MaxValue: small}, soon(rt))
		if err != nil {
			t.Error(err)
			return
		}
		for n, want := range []error{nil, kv.ErrTooLarge, kv.ErrTooLarge, nil} {
			wait(rt, 2*n+1)
			began := rt.Now()
			v, err := c.Get(key, nil, soon(rt))
			took := rt.Now().Sub(began)
			if !errors.Is(err, want) || errors.Is(err, kv.ErrTimeout) || took > time.Second || want == nil && string(v) != string(value(key, n, small)) {
				t.Errorf("GET %d: %.20q %v after %v, want %v", n, v, err, took, want)
			}
			step++
		}
		if err := c.Put(key, value(key, 9, 3000), soon(rt)); !errors.Is(err, kv.ErrTooLarge) || errors.Is(err, kv.ErrTimeout) {
			t.Error(fmt.Errorf("PUT of a long value: %w", err))
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	g.run()
}
