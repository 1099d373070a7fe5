package serve

import (
	"fmt"
	"sync"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// objects are the objects of one client by handle, and what counts against its limits. It is safe
// for concurrent use.
type objects struct {
	limits *Limits

	mu       sync.Mutex // guards what follows
	byHandle map[uint32]any
	next     uint32
	counts   [kinds]int
	bytes    int64 // of memory
	queued   int64 // bytes of queues that the NIC keeps
}

// get finds the object of a handle. Handles are this client's own: no number names another client's
// object. It fails with ErrClosed for an object that was destroyed, else with ErrInvalid.
func get[T any](t *objects, op string, h uint32) (T, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.byHandle[h].(T)
	if !ok && t.byHandle[h] == nil && h <= t.next {
		return o, &verbs.OpError{Op: op, Err: verbs.ErrClosed, Detail: "the object was destroyed"}
	}
	if !ok {
		return o, &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: fmt.Sprintf("handle %d names no such object of this application", h)}
	}
	return o, nil
}

// reserve takes a place for an object of a kind, and bytes of memory and of queues. giveBack undoes
// it.
func (t *objects) reserve(op string, k kind, bytes, queued int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.limits
	switch {
	case t.counts[k] >= l.of(k):
		return limitError(op, "this application has %d %s", t.counts[k], kindNames[k])
	case bytes < 0 || bytes > l.Bytes-t.bytes:
		return limitError(op, "%d bytes; this application has %d of %d", bytes, t.bytes, l.Bytes)
	case queued < 0 || queued > l.QueueBytes-t.queued:
		return limitError(op, "%d bytes of queues; this application has %d of %d", queued, t.queued, l.QueueBytes)
	}
	t.counts[k]++
	t.bytes += bytes
	t.queued += queued
	return nil
}

func (t *objects) giveBack(k kind, bytes, queued int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[k]--
	t.bytes -= bytes
	t.queued -= queued
}

// put gives an object a handle. A number is used again only after all others.
func (t *objects) put(o any) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if t.next++; t.next != 0 && t.byHandle[t.next] == nil {
			t.byHandle[t.next] = o
			return t.next
		}
	}
}

// drop forgets a handle.
func (t *objects) drop(h uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byHandle, h)
}

// dropConnections forgets all listeners and requests.
func (t *objects) dropConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for h, o := range t.byHandle {
		switch o.(type) {
		case *listenerObject:
			t.counts[kindListener]--
		case *requestObject:
			t.counts[kindRequest]--
		default:
			continue
		}
		delete(t.byHandle, h)
	}
}

// gone reports from the error of a destroy call that the object is no more: it was destroyed now,
// or it died with an incarnation of its NIC.
func gone(err error) bool { return err == nil || isClosed(err) }
