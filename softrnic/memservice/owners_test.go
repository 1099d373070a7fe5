package memservice_test

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// bothWays runs a test with connections made by the connection manager and by the exchange over
// TCP.
func bothWays(t *testing.T, test func(*testing.T, simrack.Options)) {
	t.Run("datagrams", func(t *testing.T) { test(t, simrack.Options{Datagrams: true}) })
	t.Run("tcp", func(t *testing.T) { test(t, simrack.Options{}) })
}

// connection is a queue pair to the memory service.
type connection struct {
	qp  verbs.QP
	cq  verbs.CQ
	mr  verbs.MR
	mem memservice.Memory
}

func (r *rig) dialOwned(ctx verbs.Context, m rdmacm.Manager, h memservice.Claim) (*connection, error) {
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
	c.mem, err = memservice.DialOwned(m, c.qp, r.srv.Addr(), rdmacm.Params{Timeout: 6}, h, ctx.Runtime().Now().Add(time.Second))
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

// A client that begins a new use of the memory retires the owners of the old use: none of their
// connections works any more, and their greatest number is stored, so that no client takes one of
// these numbers again.
func TestRetire(t *testing.T) { bothWays(t, testRetire) }

func testRetire(t *testing.T, opt simrack.Options) {
	r := newRigBy(t, memservice.Config{Region: 4096, Locks: 1024}, opt)
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		rt := ctx.Runtime()
		soon := func() clock.Time { return rt.Now().Add(time.Second) }
		open := func(owner uint32) *connection {
			c, err := r.dialOwned(ctx, m, memservice.Claim{Owner: owner})
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		retire := func(upTo, want uint32) {
			t.Helper()
			if last, err := memservice.Retire(ctx, m, r.srv.Addr(), upTo, soon()); err != nil || last != want {
				t.Errorf("retired up to %d, want %d: %v", last, want, err)
			}
		}
		if err := memservice.Fence(ctx, m, r.srv.Addr(), 1<<31, soon()); err != nil { // a number that was never used
			t.Error(err)
		}
		old, free := open(7), open(0)
		retire(5, 7)
		if old.works(soon()) || !free.works(soon()) {
			t.Error("an owner that was retired works, or the connection without an owner does not")
		}
		retire(9, 9)
		retire(0, 9)
		for _, id := range []uint32{1, 7, 9, 1 << 31} {
			if _, err := r.dialOwned(ctx, m, memservice.Claim{Owner: id}); !errors.Is(err, memservice.ErrFenced) {
				t.Errorf("owner %d came back: %v", id, err)
			}
			if h, err := memservice.WhoIs(ctx, m, r.srv.Addr(), id, soon()); err != nil || h != (memservice.Holder{Fenced: true}) {
				t.Errorf("owner %d: %+v %v", id, h, err)
			}
			if err := memservice.Fence(ctx, m, r.srv.Addr(), id, soon()); err != nil {
				t.Error(err)
			}
		}
		if next := open(10); !next.works(soon()) {
			t.Error("the next owner's connection does not work")
		}
	})
}

// Of the callers that ask for the same number, the first one gets it, and none after one has asked for a
// larger number. A number that has connected is taken, too.
func TestReserve(t *testing.T) { bothWays(t, testReserve) }

func testReserve(t *testing.T, opt simrack.Options) {
	r := newRigBy(t, memservice.Config{Region: 4096}, opt)
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		rt := ctx.Runtime()
		soon := func() clock.Time { return rt.Now().Add(time.Second) }
		for i, c := range []struct{ number, want uint32 }{{5, 0}, {5, 5}, {4, 5}, {6, 5}, {6, 6}, {20, 12}, {20, 20}} {
			if i == 5 {
				if _, err := r.dialOwned(ctx, m, memservice.Claim{Owner: 12}); err != nil {
					t.Error(err)
				}
			}
			if before, err := memservice.Reserve(ctx, m, r.srv.Addr(), c.number, soon()); err != nil || before != c.want {
				t.Errorf("request %d, for %d: the largest was %d, want %d: %v", i, c.number, before, c.want, err)
			}
			if _, err := r.dialOwned(ctx, m, memservice.Claim{Owner: c.number}); !errors.Is(err, memservice.ErrFenced) {
				t.Errorf("the number %d itself connects: %v", c.number, err)
			}
		}
	})
}

// DisconnectOthers ends all connections but those of one owner, also those without an owner, and refuses
// no later one.
func TestDisconnectOthers(t *testing.T) {
	bothWays(t, func(t *testing.T, opt simrack.Options) {
		r := newRigBy(t, memservice.Config{Region: 4096, Locks: 1024}, opt)
		r.client(func(ctx verbs.Context, m rdmacm.Manager) {
			rt := ctx.Runtime()
			soon := func() clock.Time { return rt.Now().Add(time.Second) }
			open := func(owner uint32) *connection {
				c, err := r.dialOwned(ctx, m, memservice.Claim{Owner: owner})
				if err != nil {
					t.Fatal(err)
				}
				return c
			}
			own, other, free := open(7), open(8), open(0)
			if last, err := memservice.DisconnectOthers(ctx, m, r.srv.Addr(), 7, soon()); err != nil || last != 8 {
				t.Errorf("the last owner is %d, want 8: %v", last, err)
			}
			if !own.works(soon()) || other.works(soon()) || free.works(soon()) {
				t.Error("the owner's connection does not work, or another one does")
			}
			if again := open(8); !again.works(soon()) {
				t.Error("another owner cannot connect again")
			}
		})
	})
}

// After a fence no connection of the owner works, old or new; those of others do.
func TestFence(t *testing.T) { bothWays(t, testFence) }

func testFence(t *testing.T, opt simrack.Options) {
	r := newRigBy(t, memservice.Config{Region: 4096, Locks: 1024}, opt)
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		rt := ctx.Runtime()
		soon := func() clock.Time { return rt.Now().Add(time.Second) }
		open := func(h memservice.Claim) *connection {
			c, err := r.dialOwned(ctx, m, h)
			if err != nil {
				t.Fatal(err)
			}
			if c.mem.Len != 4096 || c.mem.Locks.Len != 1024 || c.mem.Locks.Addr != 0 || c.mem.Boot == 0 || !c.works(soon()) {
				t.Errorf("%+v", c.mem)
			}
			return c
		}
		a, again, other, free := open(memservice.Claim{Owner: 7}), open(memservice.Claim{Owner: 7}), open(memservice.Claim{Owner: 8}), open(memservice.Claim{})
		if h, err := memservice.WhoIs(ctx, m, r.srv.Addr(), 7, soon()); err != nil || h != (memservice.Holder{Peer: r.cli.Addr().String(), QPs: 2}) {
			t.Errorf("%+v %v", h, err)
		}
		for range 2 { // a second fence changes nothing
			if err := memservice.Fence(ctx, m, r.srv.Addr(), 7, soon()); err != nil {
				t.Error(err)
			}
		}
		if a.works(soon()) || again.works(soon()) || !other.works(soon()) || !free.works(soon()) {
			t.Error("the fence ended others' connections, or not all of the owner's")
		}
		if _, err := r.dialOwned(ctx, m, memservice.Claim{Owner: 7}); !errors.Is(err, memservice.ErrFenced) {
			t.Error("a fenced owner came back:", err)
		}
		if h, err := memservice.WhoIs(ctx, m, r.srv.Addr(), 7, soon()); err != nil || !h.Fenced || h.QPs != 0 {
			t.Errorf("%+v %v", h, err)
		}
		if err := memservice.Fence(ctx, m, r.srv.Addr(), 0, soon()); err == nil {
			t.Error("owner 0 was fenced")
		}
		open(memservice.Claim{Owner: 8, Replaces: other.mem.Conn})
		if other.works(soon()) {
			t.Error("a connection that was replaced works")
		}
		if err := memservice.End(ctx, m, r.srv.Addr(), free.mem.Conn, soon()); err != nil || free.works(soon()) {
			t.Error("a connection that was ended works:", err)
		}
	})
}

// FenceTo ends the connections of all owners up to a number and of no other one.
func TestFenceTo(t *testing.T) { bothWays(t, testFenceTo) }

func testFenceTo(t *testing.T, opt simrack.Options) {
	r := newRigBy(t, memservice.Config{Region: 4096, Locks: 1024}, opt)
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		rt := ctx.Runtime()
		soon := func() clock.Time { return rt.Now().Add(time.Second) }
		list := make(map[uint32]*connection)
		for _, owner := range []uint32{0, 5, 7, 8} {
			c, err := r.dialOwned(ctx, m, memservice.Claim{Owner: owner})
			if err != nil {
				t.Fatal(err)
			}
			list[owner] = c
		}
		for range 2 { // a second time changes nothing
			if err := memservice.FenceTo(ctx, m, r.srv.Addr(), 7, soon()); err != nil {
				t.Error(err)
			}
		}
		for owner, c := range list {
			if want := owner == 0 || owner > 7; c.works(soon()) != want {
				t.Errorf("the connection of owner %d works: %v", owner, !want)
			}
		}
		for owner, want := range map[uint32]bool{6: false, 7: false, 8: true, 9: true} {
			if _, err := r.dialOwned(ctx, m, memservice.Claim{Owner: owner}); (err == nil) != want || !want && !errors.Is(err, memservice.ErrFenced) {
				t.Errorf("owner %d connects: %v", owner, err)
			}
		}
	})
}

// Disconnect ends the connections of an owner, which may make new ones.
func TestDisconnect(t *testing.T) { bothWays(t, testDisconnect) }

func testDisconnect(t *testing.T, opt simrack.Options) {
	r := newRigBy(t, memservice.Config{Region: 4096, Locks: 1024}, opt)
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		rt := ctx.Runtime()
		soon := func() clock.Time { return rt.Now().Add(time.Second) }
		open := func(owner uint32) *connection {
			c, err := r.dialOwned(ctx, m, memservice.Claim{Owner: owner})
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		a, again, other := open(7), open(7), open(8)
		if err := memservice.Disconnect(ctx, m, r.srv.Addr(), 7, soon()); err != nil {
			t.Error(err)
		}
		if a.works(soon()) || again.works(soon()) || !other.works(soon()) || !open(7).works(soon()) {
			t.Error("the others' connection or the owner's new one does not work, or one of the old ones does")
		}
		if err := memservice.Disconnect(ctx, m, r.srv.Addr(), 0, soon()); err == nil {
			t.Error("owner 0 was disconnected")
		}
	})
}

// A connection that several owners use ends with any of them.
func TestJoin(t *testing.T) { bothWays(t, testJoin) }

func testJoin(t *testing.T, opt simrack.Options) {
	r := newRigBy(t, memservice.Config{Region: 4096, Locks: 1024}, opt)
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		rt := ctx.Runtime()
		soon := func() clock.Time { return rt.Now().Add(time.Second) }
		open := func(owner uint32) *connection {
			c, err := r.dialOwned(ctx, m, memservice.Claim{Owner: owner})
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		join := func(c *connection, claim memservice.Claim) error {
			return memservice.Join(ctx, m, r.srv.Addr(), c.mem.Conn, claim, soon())
		}
		old, shared := open(0), open(0)
		for _, claim := range []memservice.Claim{{Owner: 7, Replaces: old.mem.Conn}, {Owner: 8, Replaces: shared.mem.Conn}, {Owner: 7}} {
			if err := join(shared, claim); err != nil {
				t.Errorf("%+v: %v", claim, err)
			}
		}
		if old.works(soon()) || !shared.works(soon()) {
			t.Error("the connection that was replaced works, or the shared one does not")
		}
		if h, err := memservice.WhoIs(ctx, m, r.srv.Addr(), 8, soon()); err != nil || h.QPs != 1 {
			t.Errorf("%+v %v", h, err)
		}
		if err := memservice.Fence(ctx, m, r.srv.Addr(), 9, soon()); err != nil || !shared.works(soon()) {
			t.Error("another owner's fence ended the connection:", err)
		}
		if err := join(shared, memservice.Claim{Owner: 9}); !errors.Is(err, memservice.ErrFenced) {
			t.Error("a fenced owner joins:", err)
		}
		if err := errors.Join(join(shared, memservice.Claim{Owner: 6}), join(shared, memservice.Claim{Owner: 10, Former: []uint32{6, 7}})); err != nil {
			t.Error(err)
		}
		for _, left := range []uint32{6, 7} {
			if err := memservice.Disconnect(ctx, m, r.srv.Addr(), left, soon()); err != nil || !shared.works(soon()) {
				t.Error("the end of an owner that had left ended the connection:", err)
			}
		}
		if err := join(shared, memservice.Claim{Owner: 10, Former: make([]uint32, memservice.MostFormer+1)}); err == nil {
			t.Error("a Join removes more owners than its message holds")
		}
		if err := memservice.Fence(ctx, m, r.srv.Addr(), 8, soon()); err != nil || shared.works(soon()) {
			t.Error("the connection works although one of its owners was fenced:", err)
		}
		if err := join(shared, memservice.Claim{Owner: 7}); err == nil {
			t.Error("an owner joins a connection that has ended")
		}
	})
}
