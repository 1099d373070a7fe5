package engine

import (
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// events is the bounded queue of asynchronous events. When it is full, new events are lost and the
// oldest are kept, because these show how a problem began.
type events struct {
	ring     []verbs.AsyncEvent
	limit    int
	activity uint64 // see Engine.Activity
}

// NextAsyncEvent removes and returns the oldest asynchronous event. It returns false if there is
// none.
func (q *events) NextAsyncEvent() (verbs.AsyncEvent, bool) {
	if len(q.ring) == 0 {
		return verbs.AsyncEvent{}, false
	}
	ev := q.ring[0]
	q.ring = q.ring[:copy(q.ring, q.ring[1:])]
	return ev, true
}

// Activity returns a counter that changes when a completion is queued, an asynchronous event is
// raised or objects become invalid.
func (q *events) Activity() uint64 { return q.activity }

// Notify changes Activity, so that the shell checks again which applications it must wake.
func (q *events) Notify() { q.activity++ }

// raise passes an asynchronous event to Hooks.Event, or queues it for NextAsyncEvent.
func (e *Engine) raise(ev verbs.AsyncEvent) {
	e.counters.AsyncEvents++
	e.Events.activity++
	switch q := &e.Events; {
	case e.Hooks.Event != nil && e.Hooks.Event(ev):
	case len(q.ring) < q.limit:
		q.ring = append(q.ring, ev)
	}
}

// Hooks are what the owner of an engine adds to it; each may be nil. The engine calls the functions in
// the middle of a step: they must not call the engine, nor keep a Note or an Event after they return.
type Hooks struct {
	// Event is called for each asynchronous event when it is raised. If it returns true, the event is
	// not queued for NextAsyncEvent.
	Event func(verbs.AsyncEvent) (taken bool)
	// Failed is called once for each queue pair whose work request fails, which refuses a request of its
	// peer, or which goes to ERROR.
	Failed func(wire.QPN, *Owner, *reason.Note)
	// Executed is called for each entry of a ring that is executed or refused.
	Executed func(wire.QPN, *sendring.Event)
	// Faults are the rules that the NIC carries out at the verbs boundary. Once set, they stay, so that
	// completions that are held back keep their order.
	Faults *fault.Verbs
}

// failed tells of qp, which has failed since the last call.
func (h *Hooks) failed(qp *QP) {
	qp.ended = true
	if h.Failed != nil {
		end, _ := qp.q.Notes().End()
		h.Failed(qp.Num(), qp.owner, &end)
	}
}
