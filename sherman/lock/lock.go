// Package lock is the local half of Sherman's locks: the clients of one compute node that want the same lock word queue here, so
// that only the first of them asks the memory server, and may hand the word over to the next without giving it back.
//
// The package keeps queues; it waits for nothing. A client that is not the first is woken when it is.
package lock

import (
	"slices"
	"sync"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Key names a lock word: the memory server and the index in its table.
type Key struct{ Server, Index int }

// Held is what a client leaves behind of the word in remote memory. The zero value is nothing.
type Held struct {
	// Tag in the word, which is this node's; 0: the word was given back.
	Tag uint64
	// Doubt is the connection that a client lost with WRITEs under way: whether the word was given back is not known,
	// and nothing may be read before that connection is over. 0: Tag is in the word for certain.
	Doubt uint64
	// Boot is the memory server's life in which the tag was written, Since the time when it was, by the node's clock.
	Boot  uint64
	Since clock.Time
}

// Table is the locks of one node. It may be used by several threads.
type Table struct {
	limit int

	mu     sync.Mutex // never held over a wait
	queues map[Key]*queue
}

// queue is the clients of one lock, the first of which has it.
type queue struct {
	waiting []*Ticket
	held    Held
	// passed is how often in a row the word was handed over.
	passed int
}

// New makes a table. A word is handed over at most limit times in a row.
func New(limit int) *Table { return &Table{limit: limit, queues: make(map[Key]*queue)} }

// Ticket is a client's place in a queue. It is for one thread.
type Ticket struct {
	table *Table
	key   Key
	wake  func()
}

// Enter joins the queue of a lock. wake is called once when the client has come to the front after others, by the one that made room,
// and must not wait; who is at the front at once is not woken.
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

// Doubts lists the locks that nobody has or wants, and whose words may still carry this node's tag, in order.
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

// Place is how many clients are before this one; at 0 it has the local lock, and held is what the last holder left.
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

// MayPass reports whether the holder, who is at the front, should hand the word over: somebody waits, and others have
// not been kept waiting too often.
func (tk *Ticket) MayPass() bool {
	t := tk.table
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[tk.key]
	return len(q.waiting) > 1 && q.passed < t.limit
}

// Pass hands the word with its tag to the next client. It returns false if nobody waits any more: then nothing has changed.
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

// GiveUp leaves the queue if others are still before this client. False says that it has come to the front, and has the lock.
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

// Leave leaves the queue, wherever in it the client is. At the front, h is what it leaves behind.
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
			q.passed = 0 // else the word was not given back, and others wait for it still
		}
		if len(q.waiting) > 0 {
			q.waiting[0].wake()
		}
	}
	if len(q.waiting) == 0 && q.held == (Held{}) {
		delete(t.queues, tk.key)
	}
}
