package engine

import "github.com/rdmalab/rdmalab/softrnic/verbs"

// events is the bounded queue of asynchronous events. When it is full, new events are lost and the
// oldest are kept, because these show how a problem began.
type events struct {
	ring     []verbs.AsyncEvent
	limit    int
	sink     func(verbs.AsyncEvent) (taken bool) // called for each event; nil means none
	activity uint64                              // see Engine.Activity
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

// raise passes an asynchronous event to the sink, or queues it for NextAsyncEvent.
func (e *Engine) raise(ev verbs.AsyncEvent) {
	e.counters.AsyncEvents++
	e.activity++
	switch q := &e.events; {
	case q.sink != nil && q.sink(ev):
	case len(q.ring) < q.limit:
		q.ring = append(q.ring, ev)
	}
}

// SetEventSink makes the engine call f for each asynchronous event when it is raised. If f returns
// true, the event is not queued for NextAsyncEvent. The engine calls f in the middle of a step: f
// must not call the engine. SetEventSink(nil) removes f.
func (q *events) SetEventSink(f func(verbs.AsyncEvent) (taken bool)) { q.sink = f }
