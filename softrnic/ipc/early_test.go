package ipc_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// holdNIC keeps exclusive use of a NIC until the returned function is called: its daemon takes no
// post meanwhile.
func (h *house) holdNIC(nic int) (release func()) {
	held, let, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		h.dev[nic].With(func(*engine.Engine) {
			close(held)
			<-let
		})
	}()
	<-held
	return func() {
		close(let)
		<-done
	}
}

// returns reports whether f ends although the NIC is held; if it does not, it ends after release.
func returns(release func(), f func() error) (early bool, err error) {
	got := make(chan error, 1)
	go func() { got <- f() }()
	select {
	case err = <-got:
		release()
		return true, err
	case <-time.After(200 * time.Millisecond):
		release()
		return false, <-got
	}
}

// A post of a send that the NIC cannot refuse returns before the daemon has taken it; every other
// post waits for the NIC's word. The work request is executed in both cases.
func TestEarlyPosts(t *testing.T) {
	for name, c := range map[string]struct {
		first bool // a send was taken before
		reset bool // and then the queue pair was reset and connected again
		early bool
		wr    func(wr *verbs.SendWR)
		want  error
	}{
		"the first send": {wr: func(*verbs.SendWR) {}},
		"a READ":         {first: true, early: true, wr: func(*verbs.SendWR) {}},
		"inline data": {first: true, early: true, wr: func(wr *verbs.SendWR) {
			*wr = verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled | verbs.Inline, Data: make([]byte, 8), RemoteAddr: wr.RemoteAddr, RKey: wr.RKey}
		}},
		"after a reset": {first: true, reset: true, wr: func(*verbs.SendWR) {}},
		"too much inline data": {first: true, want: verbs.ErrInvalid, wr: func(wr *verbs.SendWR) {
			*wr = verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline, Data: make([]byte, 257)}
		}},
		"no operation":      {first: true, want: verbs.ErrInvalid, wr: func(wr *verbs.SendWR) { wr.Op = 200 }},
		"too many SGEs":     {first: true, want: verbs.ErrInvalid, wr: func(wr *verbs.SendWR) { wr.SGL = make([]verbs.SGE, 5) }},
		"a local operation": {first: true, wr: func(wr *verbs.SendWR) { *wr = verbs.SendWR{Op: verbs.OpLocalInv, Flags: verbs.Signalled, InvRKey: 1} }},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, 0, nil)
			a := h.open(t, 0)
			r, err := newReader(a, h.open(t, 1))
			must(t, err)
			if c.first {
				must(t, r.read())
			}
			if c.reset {
				must(t, r.qp.ToReset())
				must(t, r.qp.ToInit(verbs.ToInit{}))
				must(t, r.qp.ToRTR(verbs.ToRTR{DestQPN: 4711, DestGID: verbs.GIDOf(ips[1]), PathMTU: verbs.MTU1024}))
				must(t, r.qp.ToRTS(verbs.ToRTS{Timeout: 1, RetryCount: 0}))
			}
			wr := r.wr[0]
			c.wr(&wr)
			early, err := returns(h.holdNIC(0), func() error { return r.qp.PostSend(wr) })
			if early != c.early || !errors.Is(err, c.want) {
				t.Errorf("early: %v, error: %v", early, err)
			}
			if c.want != nil {
				return
			}
			must(t, r.cq.Wait(a.Runtime().Now().Add(time.Minute)))
		})
	}
}

// A program cannot post more than MaxSendWR work requests, whether it waits for the daemon or not.
func TestEarlyPostsHaveABound(t *testing.T) {
	h := newHouse(t, 0, nil)
	a := h.open(t, 0)
	r, err := newReader(a, h.open(t, 1))
	must(t, err)
	must(t, r.read())
	must(t, r.qp.ToSQD()) // nothing is executed
	for i := range 128 {
		if err := r.qp.PostSend(r.wr...); err != nil {
			t.Fatalf("post %d: %v", i, err)
		}
	}
	if err := r.qp.PostSend(r.wr...); !errors.Is(err, verbs.ErrNoSpace) {
		t.Errorf("post 128: %v", err)
	}
}

// The NIC has what was posted before a call when it executes the call, even if the daemon sleeps and
// its wake-up comes late: this one never comes.
func TestCallsFollowPosts(t *testing.T) {
	for _, to := range []proto.Transition{proto.ToReset, proto.ToSQD, proto.ToError} {
		t.Run(string(to), func(t *testing.T) {
			h := newHouse(t, spins["block"], nil)
			a := h.attack(t, 0)
			must(t, a.equip())
			send := ring.NewQueue(a.qps, a.qp.Slots, a.qp.SendSlot)
			ring.PutSend(send.Slot(0), &verbs.SendWR{
				Op: verbs.OpWrite, SGL: []verbs.SGE{{Addr: a.mr.Addr, Length: 8, LKey: a.mr.LKey}}, RemoteAddr: a.mr.Addr, RKey: a.mr.RKey,
			}, 0)
			ring.MarkEarly(send.Slot(0))
			send.Tail.Store(1)
			a.ctl.Ring(a.qp.Bell)
			must(t, a.call(proto.OpModifyQP, proto.ModifyQP{H: a.qp.H, To: to}, nil))
			if n := h.servers[0].Clients()[0].Posted; n != 1 || send.Head.Load() != 1 {
				t.Errorf("after the call the NIC has %d posts, the head is %d", n, send.Head.Load())
			}
		})
	}
}

// What the daemon refuses after its post has returned is completed with an error, and what was
// posted behind it is flushed. The completions have the order of the posts. Package ipc posts nothing
// of the kind, an attacker may.
func TestRefusedEarlyPosts(t *testing.T) {
	h := newHouse(t, 0, nil)
	v := h.victim(t)
	a := h.attack(t, 0)
	must(t, a.equip())
	send := ring.NewQueue(a.qps, a.qp.Slots, a.qp.SendSlot)
	for i := range 3 {
		slot := send.Slot(uint64(i))
		wr := verbs.SendWR{ID: uint64(i), Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{{Addr: a.mr.Addr, Length: 8, LKey: a.mr.LKey}}, RemoteAddr: a.mr.Addr, RKey: a.mr.RKey}
		if i == 1 {
			wr.Op = 200
		}
		ring.PutSend(slot, &wr, 0)
		ring.MarkEarly(slot)
	}
	send.Tail.Store(3)
	a.ring(a.qp.Bell)
	want := [][]verbs.Status{{verbs.Success, verbs.WRFlushErr}, {verbs.LocQPOpErr}, {verbs.WRFlushErr}}
	done := ring.NewQueue(a.cqs, a.cq.Slots, ring.WCSlot)
	until(t, "three completions", func() bool { return done.Tail.Load() == 3 })
	for i := range uint64(3) {
		if wc := ring.WC(done.Slot(i)); wc.ID != i || !slices.Contains(want[i], wc.Status) {
			t.Errorf("completion %d: %+v", i, wc)
		}
	}
	if send.Refused.Load() != 0 || send.Head.Load() != 3 {
		t.Errorf("refused %d, head %d", send.Refused.Load(), send.Head.Load())
	}
	var attr verbs.QPAttr
	must(t, a.call(proto.OpQueryQP, proto.Handle{H: a.qp.H}, &attr))
	if attr.State != verbs.StateError {
		t.Errorf("the state is %v", attr.State)
	}
	v.fine()
}

// A program that has posted early learns that the NIC went down, or that its daemon hangs, from the
// wait for the completion and from the next post.
func TestEarlyPostsOfALostNIC(t *testing.T) {
	h := newHouse(t, 0, nil)
	c := impatient(t, h.sockets[0], time.Second)
	r, err := newReader(c, h.open(t, 1))
	must(t, err)
	must(t, r.read())
	release := h.holdNIC(0)
	must(t, r.qp.PostSend(r.wr...))
	err = r.cq.Wait(clock.Never)
	release()
	if !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("a wait for a daemon that hangs: %v", err)
	}
	down := h.open(t, 0)
	r, err = newReader(down, h.open(t, 1))
	must(t, err)
	must(t, r.read())
	must(t, r.qp.PostSend(r.wr...))
	h.dev[0].Down()
	if err := r.cq.Wait(clock.Never); err == nil {
		var wc [1]verbs.WC
		_, _ = r.cq.Poll(wc[:]) // the READ may have ended before
	} else if !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("a wait when the NIC is down: %v", err)
	}
	until(t, "a post is refused", func() bool { return errors.Is(r.qp.PostSend(r.wr...), verbs.ErrClosed) })
}

// A program posts a WRITE for which it wants no completion, and closes its context: the NIC has the
// WRITE before its queue pair is destroyed.
func TestCloseFollowsEarlyPosts(t *testing.T) {
	for name, spin := range spins {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				h := newHouse(t, spin, nil)
				a, b := h.open(t, 0), h.open(t, 1)
				r, err := newReader(a, b)
				must(t, err)
				must(t, r.read()) // from here on posts return early
				must(t, r.qp.PostSend(verbs.SendWR{
					Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte{7}, RemoteAddr: r.wr[0].RemoteAddr, RKey: r.wr[0].RKey,
				}))
				must(t, a.Close())
				var got [1]byte
				until(t, "the WRITE arrives", func() bool { return r.remote.ReadAt(got[:], 0) == nil && got[0] == 7 })
			}
		})
	}
}
