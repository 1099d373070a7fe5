package engine

import (
	"container/heap"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cq"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// verbFaults carries out injected faults at the verbs boundary (Hooks.Faults).
type verbFaults struct {
	late lateCompletions
	// failing lists the queue pairs that got a completion with an injected status in this step.
	failing []*QP
}

// lateCompletions are the completions that are held back, those that are due first in front. Those of one
// queue of a queue pair are due in the order of their work requests.
type lateCompletions struct {
	heap byTime
	seq  uint64
	// newest has, for each queue with completions that are held back, when its newest one is due, and how
	// many it has.
	newest map[*cq.Source]newest
}

type lateCompletion struct {
	at  clock.Time
	seq uint64 // completions that are due at one time come in the order of seq
	d   transport.Completion
}

type newest struct {
	at clock.Time
	n  int
}

// byTime implements heap.Interface.
type byTime []*lateCompletion

func (h byTime) Len() int { return len(h) }
func (h byTime) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h byTime) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *byTime) Push(x any)   { *h = append(*h, x.(*lateCompletion)) }

func (h *byTime) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	return c
}

// earliest returns when a completion may come that is due at the time `at`: not before the earlier ones
// of its queue.
func (l *lateCompletions) earliest(at clock.Time, to *cq.Source) clock.Time {
	return max(at, l.newest[to].at)
}

func (l *lateCompletions) add(at clock.Time, d *transport.Completion) {
	if l.newest == nil {
		l.newest = make(map[*cq.Source]newest)
	}
	l.seq++
	heap.Push(&l.heap, &lateCompletion{at, l.seq, *d})
	l.newest[d.To] = newest{at, l.newest[d.To].n + 1}
}

func (l *lateCompletions) pop() *lateCompletion {
	c := heap.Pop(&l.heap).(*lateCompletion)
	l.left(c.d.To)
	return c
}

// left is called for a completion of a queue that is no longer held back.
func (l *lateCompletions) left(to *cq.Source) {
	of := l.newest[to]
	if of.n--; of.n == 0 {
		delete(l.newest, to)
		return
	}
	l.newest[to] = of
}

// forget removes the completions of a queue pair.
func (l *lateCompletions) forget(qpn wire.QPN) {
	if len(l.heap) == 0 {
		return
	}
	l.heap = slices.DeleteFunc(l.heap, func(c *lateCompletion) bool {
		if c.d.WC.QPN != qpn {
			return false
		}
		l.left(c.d.To)
		return true
	})
	heap.Init(&l.heap)
}

func (l *lateCompletions) deadline() clock.Time {
	if len(l.heap) == 0 {
		return clock.Never
	}
	return l.heap[0].at
}

// maxLate bounds the completions that are held back. Further ones come at once, with those that are
// held back before them.
const maxLate = 1 << 16

// AllowPost asks the injected faults about n send work requests that a program posts. It returns how
// many of them may be posted; if these are not all, the error is that of the next one, with its index.
func (q *QP) AllowPost(now clock.Time, n int) (int, error) {
	p := q.e.Hooks.Faults
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
		status, later, id = e.Hooks.Faults.Completion(now, d.WC.QPN)
	}
	if qp := e.Tables.qps[d.WC.QPN]; status != verbs.Success && qp != nil {
		d.WC.Status, d.WC.VendorErr = status, uint32(reason.InjectedStatus)
		qp.q.Notes().Add(reason.Note{
			At: now, Kind: reason.Failed, Code: reason.InjectedStatus, Status: status, WR: reason.WorkRequest{ID: d.WC.ID}, Text: "fault " + id,
		})
		e.counters.CqeErr++
		f.failing = append(f.failing, qp)
	}
	switch at := f.late.earliest(now.Add(later), d.To); {
	case at <= now:
		f.release(now, e, now) // earlier ones of its queue may be due and not queued yet
		return false
	case len(f.late.heap) >= maxLate:
		f.release(now, e, clock.Never)
		return false
	default:
		f.late.add(at, d)
		return true
	}
}

// release queues the completions that are due at the time until.
func (f *verbFaults) release(now clock.Time, e *Engine, until clock.Time) {
	for len(f.late.heap) > 0 && f.late.deadline() <= until {
		c := f.late.pop()
		e.Events.activity++
		enqueue(now, e, &c.d)
		e.rings.wake(now, e, c.d.To.CQ().ID())
	}
}

func (f *verbFaults) deadline() clock.Time { return f.late.deadline() }

// tick queues the completions that are due. A completion queue that overflows is handled as in
// deliver.
func (f *verbFaults) tick(now clock.Time, e *Engine, out *packetio.Batch) {
	if f.late.deadline() > now {
		return
	}
	qp := e.Tables.qps[f.late.heap[0].d.WC.QPN]
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
	plan := qp.e.Hooks.Faults
	if plan == nil {
		return
	}
	plan.Forget(qp.Num())
	f.late.forget(qp.Num())
	f.failing = slices.DeleteFunc(f.failing, func(o *QP) bool { return o == qp })
}

// close forgets all completions that are held back.
func (f *verbFaults) close() { f.late, f.failing = lateCompletions{}, nil }
