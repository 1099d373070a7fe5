// Package lock is the local half of Sherman's locks: the clients of one compute node that want the
// same lock word queue here. Only the first of them sends requests for the word to the memory
// server, and it may hand the word over to the next client without releasing it.
//
// The package only keeps queues; none of its functions waits. It wakes a client that has come to
// the front.
package lock

import (
	"slices"
	"sync"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Key names a lock word: the memory server and the index in its table.
type Key struct{ Server, Index int }

// Held is the state of the lock word in remote memory, as a client leaves it to the next client of
// its node. The zero value: the node does not hold the word.
type Held struct {
	// Tag is this node's tag in the word; 0: the word was released.
	Tag uint64
	// Doubt names a connection that a client has lost with WRITEs in flight. Until that connection
	// has ended, the word may be released at any time, and must not be read to find out. 0: the
	// word certainly holds Tag.
	Doubt uint64
	// Boot is the boot number of the memory server at the time when the tag was written; Since is
	// that time, by the node's clock.
	Boot  uint64
	Since clock.Time
}

// Table holds the queues for the locks of one node. Several threads may use it.
type Table struct {
	limit int

	mu     sync.Mutex // never held during a wait
	queues map[Key]*queue
}

// queue holds the clients that want one lock. The first of them has the local lock.
type queue struct {
	waiting []*Ticket
	held    Held
	// passed is how many times in a row the word was handed over.
	passed int
}

// New makes a table. A word is handed over at most limit times in a row.
func New(limit int) *Table { return &Table{limit: limit, queues: make(map[Key]*queue)} }

// Ticket is a client's place in a queue. One thread uses it.
type Ticket struct {
	table *Table
	key   Key
	wake  func()
}

// Enter joins the queue of a lock. If other clients are before this one, the client that leaves the
// front to it calls wake, once; wake must not wait. A client that is at the front at once is not
// woken.
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
// queue. They are sorted.
func (t *Table) Doubts() []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	var keys []Key
	for k, q := range t.queues {
		if len(q.waiting) == 0 {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b Key) int {
		if a.Server != b.Server {
			return a.Server - b.Server
		}
		return a.Index - b.Index
	})
	return keys
}

// Place returns how many clients are before this one. At 0 the client has the local lock, and held
// is the state that the previous holder left.
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

// MayPass reports whether the holder, the client at the front, should hand the word over: another
// client waits, and the word was handed over fewer than limit times in a row.
func (tk *Ticket) MayPass() bool {
	t := tk.table
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[tk.key]
	return len(q.waiting) > 1 && q.passed < t.limit
}

// Pass hands the word with its tag to the next client. It returns false, and changes nothing, if no
// client waits any more.
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

// GiveUp leaves the queue if other clients are still before this one. It returns false if this
// client has come to the front, and so has the lock.
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

// Leave removes the client from the queue, at any position. At the front, it records h as the state
// of the lock word, and wakes the next client. At another position h is ignored. A client that is
// not in the queue changes nothing.
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
		if q.held = h; h.Tag == 0 {
			q.passed = 0 // otherwise the word was not released, and clients of other nodes still wait for it
		}
		if len(q.waiting) > 0 {
			q.waiting[0].wake()
		}
	}
	if len(q.waiting) == 0 && q.held == (Held{}) {
		delete(t.queues, tk.key)
	}
}
