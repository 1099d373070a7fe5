package serve

import (
	"errors"
	"sync"
)

// calls are the requests of one client that may wait for an event, each in its own goroutine.
type calls struct {
	limit int // the largest number of calls that may wait at the same time

	mu      sync.Mutex          // guards the fields below
	waits   int                 // calls that wait for their events
	working map[uint64]struct{} // requests that are being executed, by ID; one is removed when its answer is queued
}

// begin registers a call. It fails with ErrLimit if too many calls wait for events or for room in
// the outgoing queue. It fails with another error if the ID is in use, which violates the protocol.
func (l *calls) begin(op string, id uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, twice := l.working[id]; twice {
		return errors.New("malformed message: an earlier request with this ID is not answered yet")
	}
	// A call whose answer waits for room in the outgoing queue is still in l.working. The second
	// bound limits the number of these calls, so that a client that reads no answers cannot make
	// l.working grow without end.
	if l.waits >= l.limit || len(l.working) >= l.limit+maxOutgoing {
		return limitError(op, "%d calls wait already; try again when one of them has ended", l.limit)
	}
	l.waits++
	l.working[id] = struct{}{}
	return nil
}

// waited counts one waiting call less: the event for which the call has waited has come, and its
// answer is being queued.
func (l *calls) waited() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waits--
}

// end removes a call when its answer is queued.
func (l *calls) end(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.working, id)
}

// inWork reports whether a request is being executed: its answer is not queued yet.
func (l *calls) inWork(id uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, working := l.working[id]
	return working
}
