package perf_test

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// connection is a queue pair to the memory service.
type connection struct {
	qp  verbs.QP
	cq  verbs.CQ
	mr  verbs.MR
	mem perf.Memory
}

func (r *rig) dialOwned(ctx verbs.Context, m rdmacm.Manager, h perf.MemoryHello) (*connection, error) {
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, err
	}
	c := &connection{}
	if c.cq, err = ctx.CreateCQ(4); err != nil {
		return nil, err
	}
	if c.mr, err = pd.RegMR(nil, 8, verbs.LocalWrite); err != nil {
		return nil, err
	}
	if c.qp, err = pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: c.cq, RecvCQ: c.cq, MaxSGE: 1}); err != nil {
		return nil, err
	}
	c.mem, err = perf.DialOwned(m, c.qp, r.srv.Addr(), rdmacm.Params{Timeout: 6}, h, ctx.Runtime().Now().Add(time.Second))
	return c, err
}

// works writes a word of the lock table.
func (c *connection) works(deadline clock.Time) bool {
	wr := verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{c.mr.SGE(0, 8)}, RemoteAddr: c.mem.Locks.Addr + 64, RKey: c.mem.Locks.RKey}
	var wc [1]verbs.WC
	if c.qp.PostSend(wr) != nil || c.cq.Wait(deadline) != nil {
		return false
	}
	n, err := c.cq.Poll(wc[:])
	return err == nil && n == 1 && wc[0].Status == verbs.Success
}

// Whoever begins something new in the memory retires the owners there were: nothing of theirs works any more, and their numbers are
// known, so that nobody gets one of them again.
func TestRetire(t *testing.T) {
	r := newRig(t, perf.ServerConfig{Service: perf.MemoryService, Passive: true, Region: 4096, Locks: 1024})
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		rt := ctx.Runtime()
		soon := func() clock.Time { return rt.Now().Add(time.Second) }
		open := func(owner uint32) *connection {
			c, err := r.dialOwned(ctx, m, perf.MemoryHello{Owner: owner})
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		retire := func(upTo, want uint32) {
			t.Helper()
			if last, err := perf.Retire(ctx, m, r.srv.Addr(), upTo, soon()); err != nil || last != want {
				t.Errorf("retired up to %d, want %d: %v", last, want, err)
			}
		}
		if err := perf.Fence(ctx, m, r.srv.Addr(), 1<<31, soon()); err != nil { // a number that nobody had
			t.Error(err)
		}
		old, nobody := open(7), open(0)
		retire(5, 7)
		if old.works(soon()) || !nobody.works(soon()) {
			t.Error("an owner that was retired works, or nobody's connection does not")
		}
		retire(9, 9)
		retire(0, 9)
		for _, id := range []uint32{1, 7, 9, 1 << 31} {
			if _, err := r.dialOwned(ctx, m, perf.MemoryHello{Owner: id}); !errors.Is(err, perf.ErrFenced) {
				t.Errorf("owner %d came back: %v", id, err)
			}
			if h, err := perf.WhoIs(ctx, m, r.srv.Addr(), id, soon()); err != nil || h != (perf.Holder{Fenced: true}) {
				t.Errorf("owner %d: %+v %v", id, h, err)
			}
			if err := perf.Fence(ctx, m, r.srv.Addr(), id, soon()); err != nil {
				t.Error(err)
			}
		}
		if next := open(10); !next.works(soon()) {
			t.Error("the next owner's connection does not work")
		}
	})
}

// After a fence nothing of an owner works, old connections or new ones; everybody else goes on.
func TestFence(t *testing.T) {
	r := newRig(t, perf.ServerConfig{Service: perf.MemoryService, Passive: true, Region: 4096, Locks: 1024})
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		rt := ctx.Runtime()
		soon := func() clock.Time { return rt.Now().Add(time.Second) }
		open := func(h perf.MemoryHello) *connection {
			c, err := r.dialOwned(ctx, m, h)
			if err != nil {
				t.Fatal(err)
			}
			if c.mem.Len != 4096 || c.mem.Locks.Len != 1024 || c.mem.Locks.Addr != 0 || c.mem.Boot == 0 || !c.works(soon()) {
				t.Errorf("%+v", c.mem)
			}
			return c
		}
		a, again, other, nobody := open(perf.MemoryHello{Owner: 7}), open(perf.MemoryHello{Owner: 7}), open(perf.MemoryHello{Owner: 8}), open(perf.MemoryHello{})
		if h, err := perf.WhoIs(ctx, m, r.srv.Addr(), 7, soon()); err != nil || h != (perf.Holder{Peer: r.cli.Addr().String(), QPs: 2}) {
			t.Errorf("%+v %v", h, err)
		}
		for range 2 { // a second time changes nothing
			if err := perf.Fence(ctx, m, r.srv.Addr(), 7, soon()); err != nil {
				t.Error(err)
			}
		}
		if a.works(soon()) || again.works(soon()) || !other.works(soon()) || !nobody.works(soon()) {
			t.Error("the fence ended others' connections, or not all of the owner's")
		}
		if _, err := r.dialOwned(ctx, m, perf.MemoryHello{Owner: 7}); !errors.Is(err, perf.ErrFenced) {
			t.Error("a fenced owner came back:", err)
		}
		if h, err := perf.WhoIs(ctx, m, r.srv.Addr(), 7, soon()); err != nil || !h.Fenced || h.QPs != 0 {
			t.Errorf("%+v %v", h, err)
		}
		if err := perf.Fence(ctx, m, r.srv.Addr(), 0, soon()); err == nil {
			t.Error("nobody was fenced")
		}
		open(perf.MemoryHello{Owner: 8, Replaces: other.mem.Conn})
		if other.works(soon()) {
			t.Error("a connection that was replaced works")
		}
		if err := perf.EndConn(ctx, m, r.srv.Addr(), nobody.mem.Conn, soon()); err != nil || nobody.works(soon()) {
			t.Error("a connection that was ended works:", err)
		}
	})
}
