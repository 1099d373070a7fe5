package qpshare_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/qpshare"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const rackFile = `
name: share
hosts:
  - {name: ms0, role: memory}
  - {name: cn0, role: compute}
`

// rig is a memory server and one application with several threads.
type rig struct {
	*simrack.Rack
	t *testing.T
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s, err := rackfile.Parse([]byte(rackFile))
	if err != nil {
		t.Fatal(err)
	}
	rack, err := simrack.New(s, simrack.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rack.Close)
	r := &rig{rack, t}
	r.memory()
	return r
}

func (r *rig) memory() {
	h := r.Host("ms0")
	h.Go("memory", true, func(ctx verbs.Context) {
		s, err := memservice.New(ctx, h.Manager(ctx), memservice.Config{Region: 1 << 16})
		if err == nil {
			err = s.Serve()
		}
		if err != nil && !errors.Is(err, verbs.ErrClosed) {
			r.t.Error(err)
		}
	})
}

// thread is one member of the hub with its access to the memory.
type thread struct {
	*remotemem.Fabric
	id, peer int
	region   memservice.Region
	qpn      func() uint32
}

const word = 8

// threads runs f for n members of a hub.
func (r *rig) threads(n int, params rdmacm.Params, f func(th *thread, rt verbs.Runtime) error) {
	h := r.Host("cn0")
	h.Go("app", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		hub, err := qpshare.New(qpshare.Config{Context: ctx, Manager: h.Manager(ctx), Members: n, Shared: []string{memservice.Service}})
		if err != nil {
			r.t.Error(err)
			return
		}
		for i := range n {
			rt.Go(fmt.Sprint("thread", i), func() {
				if err := member(hub, i, r.Host("ms0").Addr(), params, rt, f); err != nil {
					r.t.Errorf("thread %d: %v", i, err)
				}
			})
		}
		rt.Wait()
		if err := errors.Join(hub.Close(), hub.Close()); err != nil {
			r.t.Error("close:", err)
		}
	})
	if err := r.Run(); err != nil {
		r.t.Fatal(err)
	}
}

// member runs f for one thread that joins a hub.
func member(hub *qpshare.Hub, id int, to netip.Addr, params rdmacm.Params, rt verbs.Runtime, f func(*thread, verbs.Runtime) error) error {
	m, err := hub.Join()
	if err != nil {
		return err
	}
	fab, err := remotemem.New(remotemem.Config{Context: m, Buffer: 4096})
	if err != nil {
		return err
	}
	th := &thread{Fabric: fab, id: id}
	th.peer, err = fab.AddPeer(to, 0, func(qp verbs.QP, until clock.Time) (err error) {
		th.region, err = memservice.Dial(m, qp, to, params, until)
		th.qpn = func() uint32 { return uint32(qp.QPN()) }
		return err
	})
	if err != nil {
		return err
	}
	return errors.Join(f(th, rt), fab.Close(), m.Close())
}

func (th *thread) at(off int) remotemem.Target {
	return remotemem.Target{Peer: th.peer, Addr: th.region.Addr + uint64(off), RKey: th.region.RKey}
}

// add writes a number into the thread's own word, adds to one that all share, and reads its own
// word back.
func (th *thread) add(n uint64, deadline clock.Time) error {
	if err := th.Open(th.peer, deadline); err != nil {
		return err
	}
	mr, own := th.MR(), word*(1+th.id)
	if err := mr.Store64(0, n); err != nil {
		return err
	}
	var w, a, rd remotemem.Op
	th.Write(&w, th.at(own), 0, word)
	th.FetchAdd(&a, th.at(0), 1, word)
	th.Read(&rd, th.at(own), 2*word, word)
	if err := th.Do(deadline, &w, &a, &rd); err != nil {
		return err
	}
	if got, err := mr.Load64(2 * word); err != nil || got != n {
		return fmt.Errorf("wrote %d and read %d (%w)", n, got, err)
	}
	return nil
}

// Threads share one queue pair; each gets the completions of its own work requests, and no answer
// of another thread's.
func TestCompletionsGoToTheirThreads(t *testing.T) {
	r := newRig(t)
	const threads, rounds = 12, 40
	qpns, seen := make(map[uint32]bool), make(map[uint64]bool)
	r.threads(threads, rdmacm.Params{}, func(th *thread, rt verbs.Runtime) error {
		for n := range uint64(rounds) {
			if err := th.add(n<<8|uint64(th.id), rt.Now().Add(time.Second)); err != nil {
				return err
			}
			sum, err := th.MR().Load64(word)
			if err != nil {
				return err
			}
			seen[sum] = true
		}
		qpns[th.qpn()] = true
		return nil
	})
	if len(qpns) != 1 {
		t.Errorf("%d queue pairs, want one for all: %v", len(qpns), qpns)
	}
	if len(seen) != threads*rounds || !seen[threads*rounds-1] {
		t.Errorf("%d different sums, want %d", len(seen), threads*rounds)
	}
	if left, none := r.Host("cn0").Engine().Tables.Objects(), (engine.Objects{}); left != none {
		t.Errorf("left on the NIC: %+v", left)
	}
}

// A connection that fails fails for all, and all go on over one new connection.
func TestFailureIsEverybodys(t *testing.T) {
	r := newRig(t)
	params := rdmacm.Params{Timeout: 8}
	failed, qpns := make(map[int]int), make(map[uint32]bool)
	r.At(clock.Time(5*time.Millisecond), func() {
		r.Host("ms0").SetLink(false)
	})
	r.At(clock.Time(40*time.Millisecond), func() { r.Host("ms0").SetLink(true) })
	r.threads(6, params, func(th *thread, rt verbs.Runtime) error {
		for n := uint64(0); rt.Now() < clock.Time(80*time.Millisecond); n++ {
			if err := th.add(n, rt.Now().Add(time.Second)); err != nil {
				failed[th.id]++
				rt.Sleep(time.Millisecond)
			}
			rt.Sleep(200 * time.Microsecond)
		}
		qpns[th.qpn()] = true
		return th.add(1, rt.Now().Add(time.Second))
	})
	if len(failed) != 6 || len(qpns) != 1 {
		t.Errorf("failures by thread %v, queue pairs at the end %v: want all threads on one", failed, qpns)
	}
}

// A thread whose deadline passes is told at once and gets no answer later; the others go on over a
// new connection.
func TestDeadlineIsKept(t *testing.T) {
	r := newRig(t)
	r.At(clock.Time(5*time.Millisecond), func() { r.Host("ms0").SetLink(false) })
	r.At(clock.Time(30*time.Millisecond), func() { r.Host("ms0").SetLink(true) })
	r.threads(4, rdmacm.Params{}, func(th *thread, rt verbs.Runtime) error {
		for n := uint64(0); rt.Now() < clock.Time(60*time.Millisecond); n++ {
			patience := time.Second
			if th.id == 0 {
				patience = 2 * time.Millisecond
			}
			end := rt.Now().Add(patience)
			err := th.add(n, end)
			if late := rt.Now().Sub(end); late > 0 {
				return fmt.Errorf("%v after its deadline: %w", late, err)
			}
			rt.Sleep(200 * time.Microsecond)
		}
		return th.add(1, rt.Now().Add(time.Second))
	})
}

// A thread without work requests in flight leaves without effect on the others.
func TestLeavingIsQuiet(t *testing.T) {
	r := newRig(t)
	qpns := make(map[uint32]bool)
	r.threads(5, rdmacm.Params{}, func(th *thread, rt verbs.Runtime) error {
		for n := range uint64(10 * (1 + th.id)) {
			if err := th.add(n, rt.Now().Add(time.Second)); err != nil {
				return err
			}
			qpns[th.qpn()] = true
		}
		return nil
	})
	if len(qpns) != 1 {
		t.Errorf("queue pairs %v, want one that lives until the last thread leaves", qpns)
	}
}
