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
	if f := d.stop; f != nil && bytes.HasPrefix(private, []byte("\x01\x05")) {
		d.stop = nil
		f()
		deadline = deadline.Add(time.Hour) // the deadline is a hang's; the fault is the time before the request
	}
	return d.Manager.Dial(qp, to, service, p, private, deadline)
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
			y.Host("md0").Crash()
			rt.Sleep(10 * time.Millisecond)
			y.Host("md0").Restart()
			started := false
			y.beginMeta("md0", func(m rdmacm.Manager, _ verbs.Runtime) rdmacm.Manager { return m }, func(s *meta.Server, err error) {
				y.server, started = s, err == nil
			}, func() {})
			for !started {
				rt.Sleep(time.Millisecond)
			}
			if err := y.write(c, rt, 2); err != nil {
				return err
			}
			hung, resume, ended := false, false, false
			var second error
			y.beginMeta("cn2", func(m rdmacm.Manager, rt verbs.Runtime) rdmacm.Manager {
				return &beforeRetire{m, func() {
					for hung = true; !resume; {
						rt.Sleep(time.Millisecond)
					}
				}}
			}, func(_ *meta.Server, err error) { second, ended = err, true }, func() {})
			for !hung {
				rt.Sleep(time.Millisecond)
			}
			y.Host("ms1").HangAll()
			for y.away() == 0 {
				rt.Sleep(time.Millisecond)
			}
			if err := y.write(c, rt, 3); err != nil {
				return err
			}
			y.Host("ms1").ResumeAll()
			resume = true
			for !ended {
				rt.Sleep(time.Millisecond)
			}
			if second == nil {
				t.Errorf("%d copies: a metadata server starts with a view that has changed since it read it", replicas)
			}
			rt.Sleep(time.Second)
			y.Host("cn2").CrashApps() // clients ask md0
			y.Host("md0").Crash()
			rt.Sleep(10 * time.Millisecond)
			y.Host("md0").Restart()
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
			hung, resume, ended := false, false, false
			var second error
			y.beginMeta("cn2", func(m rdmacm.Manager, rt verbs.Runtime) rdmacm.Manager {
				return &beforeRetire{m, func() {
					for hung = true; !resume; {
						rt.Sleep(time.Millisecond)
					}
				}}
			}, func(_ *meta.Server, err error) { second, ended = err, true }, func() {})
			for !hung {
				rt.Sleep(time.Millisecond)
			}
			started := false
			y.beginMeta("md0", func(m rdmacm.Manager, _ verbs.Runtime) rdmacm.Manager { return m }, func(s *meta.Server, err error) {
				y.server, started = s, err == nil
			}, func() {})
			for !started {
				rt.Sleep(time.Millisecond)
			}
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
			for !acked {
				rt.Sleep(time.Millisecond)
			}
			resume = true
			for !ended {
				rt.Sleep(time.Millisecond)
			}
			if second == nil {
				t.Errorf("%d copies: a metadata server formats memory that has got a store since it read it", replicas)
			}
			rt.Sleep(time.Second)
			y.Host("cn2").CrashApps() // clients ask md0
			y.Host("md0").Crash()
			rt.Sleep(10 * time.Millisecond)
			y.Host("md0").Restart()
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
			for !done {
				rt.Sleep(time.Millisecond)
			}
			return nil
		})
		y.run()
	}
}
