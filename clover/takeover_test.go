package clover_test

import (
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

// stopsAt calls stop when the answer `at` of a memory server to a request without a connection arrives.
// While a metadata server starts, these are the answers to its requests to end the connections of its
// predecessors.
type stopsAt struct {
	rdmacm.Manager
	rt   verbs.Runtime
	at   int
	stop func()
}

func (d *stopsAt) Dial(qp verbs.QP, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	b, err := d.Manager.Dial(qp, to, service, p, private, deadline)
	var rej *rdmacm.RejectError
	if errors.As(err, &rej) && rej.Private != nil {
		if d.at--; d.at == 0 {
			d.stop()
			d.rt.Sleep(time.Millisecond)
		}
	}
	return b, err
}

// A metadata server hangs while it takes over the memory servers, and another one starts. ms1 goes out
// and comes back with old copies. When the first metadata server resumes, what it has read of the
// superblocks is old: it does not take the copies of ms1 for whole, and does not serve beside the other
// one.
func TestATakeOverThatHangs(t *testing.T) {
	for replicas := 2; replicas <= 3; replicas++ {
		for at := 1; at <= 3; at++ {
			testHungTakeOver(t, replicas, at)
		}
	}
}

func testHungTakeOver(t *testing.T, replicas, at int) {
	y := newCopyStory(t, replicas)
	md0, ms1 := y.Host("md0"), y.Host("ms1")
	written, out := false, false
	second := func() {
		h := y.Host("cn1")
		h.Go("next", false, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			c, err := clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: y.Host("cn2").Addr()}, soon(rt))
			if err == nil {
				err = y.write(c, rt, 2)
			}
			if written = true; err == nil {
				await(rt, &out)
				err = y.write(c, rt, 3)
			}
			if err != nil {
				t.Error(err)
			}
			h.CrashApps()
			written = false
		})
	}
	y.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		if err := y.write(c, rt, 1); err != nil {
			return err
		}
		y.restartMD(rt)
		hung, serves, ended := false, false, false
		var first error
		y.beginMeta("md0", func(m rdmacm.Manager, rt verbs.Runtime) rdmacm.Manager {
			return &stopsAt{m, rt, at, func() { hung = true; y.At(rt.Now(), md0.HangAll) }}
		}, func(_ *meta.Server, err error) { first, ended = err, true }, func() {})
		await(rt, &hung)
		var next *meta.Server
		y.beginMeta("cn2", asItIs, func(s *meta.Server, err error) {
			next, serves = s, err == nil
		}, func() {})
		await(rt, &serves)
		second()
		await(rt, &written)
		ms1.HangAll()
		for next.Snapshot().Away == 0 {
			rt.Sleep(time.Millisecond)
		}
		for out = true; written; rt.Sleep(time.Millisecond) {
		}
		ms1.ResumeAll()
		md0.ResumeAll()
		await(rt, &ended)
		if first == nil {
			t.Errorf("%d copies, answer %d: the first metadata server serves by what it has read before the second one served", replicas, at)
		} else {
			y.meta()
		}
		lost, err := y.read(c, rt)
		if lost > 0 {
			t.Errorf("%d keys lost", lost)
		}
		return err
	})
	y.run()
}
