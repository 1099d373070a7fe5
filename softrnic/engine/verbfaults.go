package engine

import (
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// verbFaults carries out injected faults at the verbs boundary (fault.Verbs). plan is nil until the
// first rule is installed; it then stays, so that completions that are held back keep their order.
type verbFaults struct {
	plan *fault.Verbs
	// late has the completions that are held back, by the time when they are due; those of one queue
	// of a queue pair are in the order of their work requests.
	late []lateCompletion
	// failing lists the queue pairs that got a completion with an injected status in this step.
	failing []*QP
}

type lateCompletion struct {
	at clock.Time
	d  transport.Completion
}

// maxLate bounds the completions that are held back. Further ones come at once, with those that are
// held back before them.
const maxLate = 1 << 16

// SetVerbsFaults makes the NIC carry out the rules of a plan. The caller changes the plan only while
// it has exclusive use of the engine.
func SetVerbsFaults(e *Engine, plan *fault.Verbs) { e.verbFaults.plan = plan }

// AllowPost asks the injected faults about n send work requests that a program posts. It returns how
// many of them may be posted; if these are not all, the error is that of the next one, with its index.
func (q *QP) AllowPost(now clock.Time, n int) (int, error) {
	p := q.e.verbFaults.plan
	if p == nil || q.dead {
		return n, nil
	}
	for i := range n {
		if err := p.Post(now, q.Num()); err != nil {
			q.Deny(now, err)
			return i, indexed(err, i)
		}
	}
	return n, nil
}

// take changes a completion as the rules say. It returns true if it has kept the completion.
func (f *verbFaults) take(now clock.Time, e *Engine, d *transport.Completion) (kept bool) {
	status, later, id := verbs.Success, time.Duration(0), ""
	if d.WC.Status == verbs.Success {
		status, later, id = f.plan.Completion(now, d.WC.QPN)
	}
	if qp := e.qps[d.WC.QPN]; status != verbs.Success && qp != nil {
		d.WC.Status, d.WC.VendorErr = status, uint32(reason.InjectedStatus)
		qp.q.Notes().Add(reason.Note{
			At: now, Kind: reason.Failed, Code: reason.InjectedStatus, Status: status, WR: reason.WorkRequest{ID: d.WC.ID}, Text: "fault " + id,
		})
		e.counters.CqeErr++
		f.failing = append(f.failing, qp)
	}
	at := now.Add(later)
	for i := range f.late {
		if f.late[i].d.To == d.To {
			at = max(at, f.late[i].at) // it stays behind the earlier ones of its queue
		}
	}
	switch {
	case at <= now:
		f.release(now, e, now) // earlier ones of its queue may be due and not queued yet
		return false
	case len(f.late) >= maxLate:
		f.release(now, e, clock.Never)
		return false
	}
	i, _ := slices.BinarySearchFunc(f.late, at, func(l lateCompletion, at clock.Time) int {
		if l.at > at {
			return 1
		}
		return -1 // equal ones go behind those that are there
	})
	f.late = slices.Insert(f.late, i, lateCompletion{at, *d})
	return true
}

// release queues the completions that are due at the time until.
func (f *verbFaults) release(now clock.Time, e *Engine, until clock.Time) {
	n := 0
	for ; n < len(f.late) && f.late[n].at <= until; n++ {
		e.activity++
		enqueue(now, e, &f.late[n].d)
		e.rings.wake(now, e, f.late[n].d.To.CQ().ID())
	}
	f.late = slices.Delete(f.late, 0, n)
}

func (f *verbFaults) deadline() clock.Time {
	if len(f.late) == 0 {
		return clock.Never
	}
	return f.late[0].at
}

// tick queues the completions that are due. A completion queue that overflows is handled as in
// deliver.
func (f *verbFaults) tick(now clock.Time, e *Engine, out *packetio.Batch) {
	if len(f.late) == 0 || f.late[0].at > now {
		return
	}
	qp := e.qps[f.late[0].d.WC.QPN]
	f.release(now, e, now)
	if qp != nil {
		e.apply(now, qp, out)
	}
}

// fail moves the queue pairs with injected statuses to the error state, which flushes their work
// requests.
func (f *verbFaults) fail(now clock.Time, e *Engine, out *packetio.Batch) {
	for len(f.failing) > 0 {
		qp := f.failing[0]
		f.failing = f.failing[:copy(f.failing, f.failing[1:])]
		if !qp.live() {
			continue
		}
		_ = qp.q.Fail(now, reason.AfterFailure, &e.acts) // cannot fail: the queue pair is in neither RESET nor ERROR
		e.carryOut(now, qp, out)
		e.sched.rekey(qp)
	}
}

// forget forgets a queue pair that is reset or destroyed, with its completions that are held back.
func (f *verbFaults) forget(qp *QP) {
	if f.plan == nil {
		return
	}
	f.plan.Forget(qp.Num())
	f.late = slices.DeleteFunc(f.late, func(l lateCompletion) bool { return l.d.WC.QPN == qp.Num() })
	f.failing = slices.DeleteFunc(f.failing, func(o *QP) bool { return o == qp })
}

// close forgets all completions that are held back.
func (f *verbFaults) close() { f.late, f.failing = nil, nil }
