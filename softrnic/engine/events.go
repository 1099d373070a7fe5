package engine

import "github.com/rdmalab/rdmalab/softrnic/verbs"

// events is the bounded queue of asynchronous events. When it is full the newest event is lost: the oldest one
// tells how the trouble began.
type events struct {
	ring  []verbs.AsyncEvent
	limit int
	lost  uint64
}

func (q *events) push(ev verbs.AsyncEvent) {
	if len(q.ring) >= q.limit {
		q.lost++
		return
	}
	q.ring = append(q.ring, ev)
}

func (q *events) pop() (verbs.AsyncEvent, bool) {
	if len(q.ring) == 0 {
		return verbs.AsyncEvent{}, false
	}
	ev := q.ring[0]
	q.ring = q.ring[:copy(q.ring, q.ring[1:])]
	return ev, true
}

// raise records an event for the application.
func (e *Engine) raise(ev verbs.AsyncEvent) {
	e.counters.AsyncEvents++
	e.activity++
	e.async.push(ev)
}

// NextAsyncEvent takes the oldest asynchronous event.
func (e *Engine) NextAsyncEvent() (verbs.AsyncEvent, bool) { return e.async.pop() }

// HasAsyncEvent reports whether NextAsyncEvent would return one.
func (e *Engine) HasAsyncEvent() bool { return len(e.async.ring) > 0 }
