package engine

import "github.com/rdmalab/rdmalab/softrnic/verbs"

// events is the bounded queue of asynchronous events. When it is full the newest event is lost: the
// oldest one shows how the trouble began.
type events struct {
	ring     []verbs.AsyncEvent
	limit    int
	lost     uint64
	sink     func(verbs.AsyncEvent) (taken bool) // or nil
	activity uint64                              // see Engine.Activity
}

func (q *events) push(ev verbs.AsyncEvent) {
	if len(q.ring) >= q.limit {
		q.lost++
		return
	}
	q.ring = append(q.ring, ev)
}

// NextAsyncEvent takes the oldest asynchronous event. False: there is none.
func (q *events) NextAsyncEvent() (verbs.AsyncEvent, bool) {
	if len(q.ring) == 0 {
		return verbs.AsyncEvent{}, false
	}
	ev := q.ring[0]
	q.ring = q.ring[:copy(q.ring, q.ring[1:])]
	return ev, true
}

// Activity is a counter that changes when a completion was delivered, an asynchronous event was
// raised or objects died.
func (q *events) Activity() uint64 { return q.activity }

// Notify changes Activity, so that a shell checks again what its applications wait for.
func (q *events) Notify() { q.activity++ }

// raise records an event for the application.
func (e *Engine) raise(ev verbs.AsyncEvent) {
	e.counters.AsyncEvents++
	e.activity++
	if e.sink != nil && e.sink(ev) {
		return
	}
	e.push(ev)
}

// SetEventSink makes the engine show each asynchronous event to f when it is raised, before it is
// queued for NextAsyncEvent; it is not queued if f takes it. The engine calls f in the middle of a
// step: f must not call the engine. nil ends that.
func (q *events) SetEventSink(f func(verbs.AsyncEvent) (taken bool)) { q.sink = f }
