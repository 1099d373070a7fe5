package clover

import (
	"slices"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Turns lets clients of one process PUT the same key one after another. Without turns, several
// clients append to the chain at the same time. One of them wins. Each of the others needs further
// round trips for every append that comes before its own.
//
// A PUT whose node was linked also answers other PUTs of its key: those that were waiting when it
// began to link its node. Their values count as written immediately before its own, and no client
// can have read them. So they need no round trip. A PUT that has failed answers no other.
//
// Turns only save work. They exclude no client: clients of other processes append at any time, and
// a client that has waited for turnPatience goes on without its turn. Any thread may call the
// methods.
type Turns struct {
	mu   sync.Mutex // guards keys and the turns in them; not held during a wait
	keys map[uint64][]*turn
}

// turn is one PUT. It is in the list of its key until it ends, or until it goes on without its
// turn. The first PUT of the list has its turn.
type turn struct {
	// gate opens when the PUT becomes the first of the list, or another PUT stands for it (over).
	gate verbs.Gate
	// covered is true if this PUT was in the list when the first PUT of the list began to link its
	// node.
	covered bool
	// over is true if another PUT stands for this one: that PUT has put its node into the chain, so
	// this PUT need not append a node. at is the node of the other PUT.
	over bool
	at   layout.Location
}

// turnPatience is the longest time that a client waits for its turn. It is longer than a PUT
// usually takes, and shorter than a usual lease. If the lease is short, a client waits only for
// 1/turnLeasePart of the lease.
const (
	turnPatience  = 100 * time.Millisecond
	turnLeasePart = 4
)

func NewTurns() *Turns { return &Turns{keys: make(map[uint64][]*turn)} }

// takeTurn waits until the client may PUT key. It returns true if the PUT of another client, which
// has put its own node into the chain meanwhile, has answered this PUT, too: then the client need
// not append. After it has returned false, the caller must call endTurn.
func (c *appender) takeTurn(key uint64, deadline clock.Time) (answered bool) {
	ts := c.session.cfg.Turns
	if ts == nil {
		return false
	}
	me := &c.turn
	if me.gate == nil {
		me.gate = c.session.rt.NewGate()
	}
	if ts.enter(key, me) {
		return false
	}
	defer c.session.rt.Leave(c.session.rt.Enter(kv.PhaseLock))
	until := min(deadline, c.session.rt.Now().Add(min(turnPatience, c.session.lease.Length/turnLeasePart)))
	for {
		late := me.gate.Wait(until) != nil
		mine, over := ts.look(key, me, late)
		if over {
			c.placed = me.at
		}
		if mine || over || late {
			return over
		}
	}
}

// coverTurns marks the PUTs of the key that wait behind the client's turn as covered (see
// Turns.cover). It is called before the client begins to link its node.
func (c *appender) coverTurns(key uint64) {
	if c.session.cfg.Turns != nil {
		c.session.cfg.Turns.cover(key, &c.turn)
	}
}

// endTurn ends the client's turn. It does nothing if the client goes on without its turn. linked is
// true if the client's node, c.placed, is in the chain.
func (c *appender) endTurn(key uint64, linked bool) {
	if c.session.cfg.Turns != nil {
		c.session.cfg.Turns.end(key, &c.turn, linked, c.placed)
	}
}

// enter appends a PUT to the list of its key. It reports whether the PUT has its turn at once.
func (ts *Turns) enter(key uint64, t *turn) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t.covered, t.over = false, false
	list := append(ts.keys[key], t)
	ts.keys[key] = list
	return len(list) == 1
}

// look reports whether a PUT has its turn (mine), or was answered by another one (over). If neither
// is true and leave is set, the PUT leaves the list.
func (ts *Turns) look(key uint64, t *turn, leave bool) (mine, over bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t.over {
		return false, true
	}
	list := ts.keys[key]
	if list[0] == t {
		return true, false
	}
	if leave {
		i := slices.Index(list, t)
		ts.keys[key] = slices.Delete(list, i, i+1)
	}
	return false, false
}

// cover marks the PUTs that wait behind t as covered. It does nothing if t does not have its turn.
func (ts *Turns) cover(key uint64, t *turn) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if list := ts.keys[key]; len(list) > 0 && list[0] == t {
		for _, w := range list[1:] {
			w.covered = true
		}
	}
}

// end removes t from the list. If t has put its node, `at`, into the chain (linked), end also
// removes the covered PUTs, for which t stands. Then the next PUT has its turn. end does nothing if
// t does not have its turn.
func (ts *Turns) end(key uint64, t *turn, linked bool, at layout.Location) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	list := ts.keys[key]
	if len(list) == 0 || list[0] != t {
		return
	}
	left := list[:0]
	for _, w := range list[1:] {
		if linked && w.covered {
			w.over, w.at = true, at
			w.gate.Open()
			continue
		}
		left = append(left, w)
	}
	clear(list[len(left):])
	if len(left) == 0 {
		delete(ts.keys, key)
		return
	}
	ts.keys[key] = left
	left[0].gate.Open()
}
