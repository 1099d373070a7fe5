// Package lock is the local half of Sherman's locks. The clients of one compute node that want the
// same lock word queue here. Only the first of them sends requests for the word to the memory
// server. It may hand the word over to the next client without releasing it.
//
// The package only keeps the queues. None of its functions waits: when a client comes to the front
// of a queue, the package calls the client's wake function.
package lock

import (
	"cmp"
	"slices"
	"sync"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Key names a lock word: the memory server, and the index of the word there.
type Key struct{ Server, Index int }

// Held is the state of the lock word in remote memory, which a client passes to the next client of
// its node. The zero value means that the node does not hold the lock.
type Held struct {
	// Tag is this node's tag in the word; 0 means that the word was released.
	Tag uint64
	// Doubt is the number of a connection that failed while a client had requests for the word in
	// flight. Until the server has ended that connection, one of these requests may still change
	// the word, so reading the word shows nothing. 0 means that the word certainly has Tag.
	Doubt uint64
	// Boot is the boot number of the memory server when Tag was written. Since is when Tag was
	// written, by the node's clock.
	Boot  uint64
	Since clock.Time
}

// Table holds the queues for the locks of one node. Several threads may use it.
type Table struct {
	limit int

	mu     sync.Mutex // guards queues and what is in them; never held during a wait
	queues map[Key]*queue
}

// queue has the clients that want one lock. The first client has the local lock.
type queue struct {
	waiting []*Ticket
	held    Held
	// passed is how many times in a row a client has handed the word over.
	passed int
}

// New makes a table. Clients hand a word over at most limit times in a row.
func New(limit int) *Table { return &Table{limit: limit, queues: make(map[Key]*queue)} }

// Ticket is a client's place in a queue. One thread uses it.
type Ticket struct {
	table *Table
	key   Key
	wake  func()
}

// Enter puts a client at the end of the queue for a lock. When the client comes to the front later,
// wake is called once; it must not wait. If the client is at the front at once, wake is not called.
func (t *Table) Enter(k Key, wake func()) *Ticket {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[k]
	if q == nil {
		q = &queue{}
		t.queues[k] = q
	}
	tk := &Ticket{table: t, key: k, wake: wake}
	q.waiting = append(q.waiting, tk)
	return tk
}

// Doubts lists the locks whose words may still have this node's tag although no client is in the
// queue. The list is sorted by server and index.
func (t *Table) Doubts() []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	var keys []Key
	for k, q := range t.queues {
		if len(q.waiting) == 0 {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b Key) int { return cmp.Or(a.Server-b.Server, a.Index-b.Index) })
	return keys
}

// Place returns how many clients are ahead of this one. If there is none, this client has the local
// lock, and held is the state in which the previous client left the word.
func (tk *Ticket) Place() (ahead int, held Held) {
	t := tk.table
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[tk.key]
	ahead = slices.Index(q.waiting, tk)
	if ahead == 0 {
		held = q.held
	}
	return ahead, held
}

// MayPass reports whether the client at the front should hand the word over: another client waits,
// and clients have handed the word over fewer than limit times in a row.
func (tk *Ticket) MayPass() bool {
	t := tk.table
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[tk.key]
	return len(q.waiting) > 1 && q.passed < t.limit
}

// Pass hands the word with its tag over to the next client. If no client waits any more, it returns
// false and changes nothing.
func (tk *Ticket) Pass(h Held) bool {
	t := tk.table
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[tk.key]
	if len(q.waiting) < 2 {
		return false
	}
	q.waiting, q.held = slices.Delete(q.waiting, 0, 1), h
	q.passed++
	q.waiting[0].wake()
	return true
}

// GiveUp removes this client from the queue if other clients are ahead of it. It returns false if
// this client is at the front: then it has the local lock.
func (tk *Ticket) GiveUp() bool {
	t := tk.table
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[tk.key]
	i := slices.Index(q.waiting, tk)
	if i == 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	return true
}

// Leave removes the client from the queue, at any position. If the client is at the front, Leave
// stores h as the state of the lock word and wakes the next client. Otherwise it ignores h. If the
// client is not in the queue, Leave changes nothing.
func (tk *Ticket) Leave(h Held) {
	t := tk.table
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[tk.key]
	i := slices.Index(q.waiting, tk)
	if i < 0 {
		return
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	if i == 0 {
		// passed counts the hand-overs in a row. If the word keeps its tag, passed keeps its value,
		// because clients of other nodes, which wait for the word, have had no chance to get it.
		if q.held = h; h.Tag == 0 {
			q.passed = 0
		}
		if len(q.waiting) > 0 {
			q.waiting[0].wake()
		}
	}
	if len(q.waiting) == 0 && q.held == (Held{}) {
		delete(t.queues, tk.key)
	}
}
