package serve

import (
	"errors"
	"sync"
)

// calls are the requests of one client that have goroutines, because they may wait.
type calls struct {
	limit int // of calls that wait at the same time

	mu      sync.Mutex // guards the fields below
	waits   int
	working map[uint64]struct{} // by ID, until the answer is queued
}

// begin counts a call. It fails with ErrLimit when too many wait, and with another error when the
// ID is in use, which is a breach of the protocol.
func (l *calls) begin(op string, id uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, twice := l.working[id]; twice {
		return errors.New("malformed message: an earlier request with this ID is not answered yet")
	}
	// Calls whose answers wait for room count when there are more than a queue of answers takes:
	// then the goroutine that reads waits, too.
	if l.waits >= l.limit || len(l.working) >= l.limit+maxOutgoing {
		return limitError(op, "%d calls wait at the same time", l.limit)
	}
	l.waits++
	l.working[id] = struct{}{}
	return nil
}

// waited: a call waits no more; its answer is being queued.
func (l *calls) waited() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waits--
}

// end forgets a call whose answer is queued.
func (l *calls) end(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.working, id)
}

// inWork reports whether the answer of a call is not queued yet.
func (l *calls) inWork(id uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, working := l.working[id]
	return working
}
