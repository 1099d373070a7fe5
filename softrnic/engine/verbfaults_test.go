package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// faulty makes a pair of NICs, the first of which has a rule at the verbs boundary.
func faulty(t *testing.T, r fault.VerbsRule) (*pair, *fault.Verbs) {
	t.Helper()
	p := newPair(t, nil)
	plan := fault.NewVerbs(1, "a")
	if _, err := plan.Add(0, r); err != nil {
		t.Fatal(err)
	}
	p.a.e.Hooks.Faults = plan
	drainEvents(p.a.e)
	return p, plan
}

func (p *pair) write(t *testing.T, id uint64) {
	t.Helper()
	p.post(t, p.a, verbs.SendWR{ID: id, Op: verbs.OpWrite, Flags: verbs.Inline | verbs.Signalled, Data: []byte("x"), RemoteAddr: p.b.base, RKey: p.b.key})
}

// The second completion has the status, the work requests behind it are flushed, and the queue pair
// works again after a reset.
func TestInjectedStatus(t *testing.T) {
	p, _ := faulty(t, fault.VerbsRule{Kind: fault.Completion, Status: "RETRY_EXC_ERR", Nth: 2})
	for id := range uint64(4) {
		p.write(t, id)
	}
	p.settle(t)
	want := []verbs.Status{verbs.Success, verbs.RetryExcErr, verbs.WRFlushErr, verbs.WRFlushErr}
	wc := p.a.poll(t)
	if len(wc) != 4 || wc[1].VendorErr != uint32(reason.InjectedStatus) {
		t.Fatalf("%+v", wc)
	}
	seen := map[uint64]bool{}
	for i := range wc {
		// WRITEs that the same acknowledgement has completed are successful, and behind the fault.
		if wc[i].ID != uint64(i) || i < 2 && wc[i].Status != want[i] || seen[wc[i].ID] {
			t.Errorf("completion %d: %+v", i, wc[i])
		}
		seen[wc[i].ID] = true
	}
	if q, err := p.a.qp.Query(); err != nil || q.State != verbs.StateError {
		t.Errorf("%v, %v", q.State, err)
	}
	p.a.out.Reset()
	for _, q := range []*QP{p.a.qp, p.b.qp} {
		if err := q.ToReset(); err != nil {
			t.Fatal(err)
		}
	}
}

// A completion that is late keeps those behind it in its queue waiting, in their order, and none comes
// before its time; a queue pair that is reset has none.
func TestLateCompletions(t *testing.T) {
	const delay = clock.Time(1000)
	p, plan := faulty(t, fault.VerbsRule{Kind: fault.Late, Delay: 1000, Nth: 2})
	for id := range uint64(4) {
		p.write(t, id)
		p.settle(t)
	}
	if wc := p.a.poll(t); len(wc) != 1 || wc[0].ID != 0 {
		t.Fatalf("at once: %+v", wc)
	}
	due := p.a.e.verbFaults.deadline()
	if due < delay || p.a.e.Deadline() > due {
		t.Errorf("due at %d, the NIC at %d", due, p.a.e.Deadline())
	}
	p.a.e.Tick(due-1, &p.a.out)
	if wc := p.a.poll(t); len(wc) != 0 {
		t.Errorf("too early: %+v", wc)
	}
	before := p.a.e.Events.Activity()
	p.a.e.Tick(due, &p.a.out)
	wc := p.a.poll(t)
	if len(wc) != 3 || wc[0].ID != 1 || wc[1].ID != 2 || wc[2].ID != 3 || p.a.e.Events.Activity() == before {
		t.Errorf("%+v", wc)
	}
	plan.Clear(0)
	if _, err := plan.Add(0, fault.VerbsRule{Kind: fault.Late, Delay: 1000}); err != nil {
		t.Fatal(err)
	}
	done := func(now clock.Time, id uint64) {
		p.a.e.complete(now, &transport.Completion{To: p.a.qp.q.Sent(), WC: verbs.WC{ID: id, QPN: p.a.qp.Num()}})
	}
	done(0, 20)
	plan.Clear(0)
	done(5*delay, 21) // 20 is due, and no Tick has queued it
	if wc := p.a.poll(t); len(wc) != 2 || wc[0].ID != 20 || wc[1].ID != 21 {
		t.Errorf("a later completion overtakes: %+v", wc)
	}
	if _, err := plan.Add(0, fault.VerbsRule{Kind: fault.Late, Delay: 1000}); err != nil {
		t.Fatal(err)
	}
	p.write(t, 9)
	p.settle(t)
	if err := p.a.qp.ToReset(); err != nil {
		t.Fatal(err)
	}
	p.a.e.Tick(due+2*delay, &p.a.out)
	if wc := p.a.poll(t); len(wc) != 0 || p.a.e.verbFaults.deadline() != clock.Never {
		t.Errorf("after a reset: %+v", wc)
	}
}

// A rule refuses the third work request of a list; without rules all may be posted, and to ask takes no
// memory.
func TestAllowPost(t *testing.T) {
	p, plan := faulty(t, fault.VerbsRule{Kind: fault.Post, Errno: "ENOMEM", Nth: 3})
	n, err := p.a.qp.AllowPost(0, 5)
	if op := (*verbs.OpError)(nil); n != 2 || !errors.Is(err, verbs.ErrNoSpace) || !errors.As(err, &op) || op.Index != 2 {
		t.Errorf("%d, %v", n, err)
	}
	plan.Clear(0)
	if n := testing.AllocsPerRun(100, func() { _, _ = p.a.qp.AllowPost(0, 5) }); n > 0 {
		t.Errorf("%v allocations without rules", n)
	}
	if n, err := p.b.qp.AllowPost(0, 5); n != 5 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// As many completions as are held back at most need a time that grows with their number, and not with its
// square, and come in the order of their times.
func TestManyLateCompletions(t *testing.T) {
	p, _ := faulty(t, fault.VerbsRule{Kind: fault.Late, Delay: time.Second})
	f := &p.a.e.verbFaults
	began := time.Now()
	for i := range maxLate {
		p.a.e.complete(clock.Time(i), &transport.Completion{To: p.a.qp.q.Sent(), WC: verbs.WC{ID: uint64(i), QPN: p.a.qp.Num()}})
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("%d completions took %v", maxLate, took)
	}
	if at := f.deadline(); at != clock.Time(time.Second) {
		t.Errorf("the first is due at %v", at)
	}
	// One more comes at once, behind those of its queue.
	p.a.e.complete(maxLate, &transport.Completion{To: p.a.qp.q.Sent(), WC: verbs.WC{ID: maxLate, QPN: p.a.qp.Num()}})
	if f.deadline() != clock.Never {
		t.Error("completions are still held back")
	}
	wc := p.a.poll(t)
	for i := range wc {
		if wc[i].ID != uint64(i) {
			t.Fatalf("completion %d is that of work request %d", i, wc[i].ID)
		}
	}
	if len(wc) == 0 {
		t.Error("no completion")
	}
}
