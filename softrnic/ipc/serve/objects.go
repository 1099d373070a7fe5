package serve

import (
	"fmt"
	"sync"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// objects has the objects of one client by handle, and counts them against its limits. The objects
// are verbs.PD, verbs.MW, verbs.DM, verbs.AH, rdmacm.Listener, rdmacm.Request, *memory, *mrObject
// and *queueObject. The objects of an unmodified program are in program.objects; here they are only
// counted. objects is safe for concurrent use.
type objects struct {
	limits *Limits
	pool   *pool
	// refused is told of each refusal because of a quota; nil if nothing is.
	refused func(k kind, why error)

	mu       sync.Mutex // guards the fields below
	byHandle map[uint32]any
	next     uint32       // the newest handle
	counts   [kinds]int64 // objects or bytes of each kind
}

// get returns the object with handle h. Each client has its own handles: no number names another
// client's object. get fails with ErrClosed for an object that was destroyed, else with ErrInvalid.
func get[T any](t *objects, op string, h uint32) (T, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.byHandle[h].(T)
	if !ok && t.byHandle[h] == nil && h <= t.next {
		return o, &verbs.OpError{Op: op, Err: verbs.ErrClosed, Detail: "the object was destroyed"}
	}
	if !ok {
		return o, unnamed(op, h)
	}
	return o, nil
}

// unnamed returns the error for a handle that names no object of the wanted kind.
func unnamed(op string, h uint32) error {
	return &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: fmt.Sprintf("handle %d names no such object of this application", h)}
}

func (t *objects) queue(op string, h uint32, k kind) (*queueObject, error) {
	o, err := get[*queueObject](t, op, h)
	if err == nil && o.kind != k {
		return nil, unnamed(op, h)
	}
	return o, err
}

// need is an amount of a resource: n objects or bytes of kind k.
type need struct {
	k kind
	n int64
}

// reserve counts one object of kind k against the quotas, and with it `bytes` of mapped memory and
// `queued` bytes of the NIC's memory for queues. giveBack is its inverse.
func (t *objects) reserve(op string, k kind, bytes, queued int64) error {
	return t.take(op, need{k, 1}, need{kindMapped, bytes}, need{kindQueued, queued})
}

func (t *objects) giveBack(k kind, bytes, queued int64) {
	t.release(need{k, 1}, need{kindMapped, bytes}, need{kindQueued, queued})
}

// made counts a new object against the quota of its kind, and calls f, which makes the object. If f
// fails, made gives the quota back.
func made[T any](t *objects, op string, k kind, queued int64, f func() (T, error)) (o T, err error) {
	if err = t.reserve(op, k, 0, queued); err != nil {
		return o, err
	}
	if o, err = f(); err != nil {
		t.giveBack(k, 0, queued)
	}
	return o, err
}

func ended[T any](t *objects, op string, h uint32, k kind, f func(T) error) (any, error) {
	o, err := get[T](t, op, h)
	if err != nil {
		return nil, err
	}
	if err = f(o); gone(err) {
		t.drop(h)
		t.giveBack(k, 0, 0)
	}
	return nil, err
}

// take counts the resources in needs, either all or none. It fails with ErrLimit; the error names
// the quota.
func (t *objects) take(op string, needs ...need) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, x := range needs {
		if err := t.takeOne(op, x); err != nil {
			t.drain(needs[:i])
			if t.refused != nil {
				t.refused(x.k, err)
			}
			return quotaError{err}
		}
	}
	return nil
}

func (t *objects) takeOne(op string, x need) error {
	q := &quotas[x.k]
	has, most := t.counts[x.k], t.limits.of(x.k)
	if x.n < 0 || x.n > most-has {
		return limitError(op, "quota %s: %d more; this program has %d of %d %s", q.name, x.n, has, most, q.what)
	}
	if of := quotas[x.k].table; of != noTable {
		own := int64(0)
		for k := range kinds {
			if quotas[k].table == of {
				own += t.counts[k]
			}
		}
		if left, ok := t.pool.take(of, own, x.n); !ok {
			return limitError(op, "quota %s: %d more; this program has %d, and %d of %d %s for programs are left; a program must leave as many as it has",
				q.name, x.n, own, left, t.pool.size[of], q.what)
		}
	}
	t.counts[x.k] += x.n
	return nil
}

// has reports whether the client may have one more object of kind k.
func (t *objects) has(k kind) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.takeOne("", need{k, 1})
	if err == nil {
		t.drain([]need{{k, 1}})
	}
	return err == nil
}

// release gives back resources that take has counted.
func (t *objects) release(needs ...need) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drain(needs)
}

// drain does the work of release. The caller holds mu.
func (t *objects) drain(needs []need) {
	for _, x := range needs {
		t.counts[x.k] -= x.n
		if of := quotas[x.k].table; of != noTable {
			t.pool.giveBack(of, x.n)
		}
	}
}

// releaseAll gives back all resources. It is called when all objects of the client are destroyed.
func (t *objects) releaseAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range kinds {
		t.drain([]need{{k, t.counts[k]}})
	}
}

// put gives an object a handle. A number is reused only after all others were used.
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

func (t *objects) drop(h uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byHandle, h)
}

func (t *objects) dropConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for h, o := range t.byHandle {
		switch o.(type) {
		case rdmacm.Listener:
			t.counts[kindListener]--
		case rdmacm.Request:
			t.counts[kindRequest]--
		default:
			continue
		}
		delete(t.byHandle, h)
	}
}

// gone reports whether an object no longer exists after a destroy call that returned err. This is
// so if the call succeeded, or if the object had ended with an incarnation of the NIC.
func gone(err error) bool { return err == nil || isClosed(err) }
