// Package cq is the completion queue: a queue of limited size to which the NIC adds work
// completions and from which an application removes them. The package also has arming, moderation
// of events, and overruns.
//
// A CQ belongs to one engine, and like the engine it is used by one thread at a time. It does not
// wake threads: packages verbsengine and ipc/serve call Fired and wake the threads that wait. When
// a queue is full, it loses the newest completion, never an older one. This is an overrun, for
// which the engine raises an event (IBTA 10.10: an affiliated asynchronous error of the queue).
//
// The send queue and the receive queue of a queue pair add completions through a Source each. The
// oldest completions are in a ring, which is smaller than a large queue. When the ring is full, new
// completions go to a chain of their source, and they do so until all chains are empty, so that the
// order stays. A heap finds the chain with the oldest completion. When a queue pair is destroyed or
// reset, Purge removes the completions of its sources. Purge drops their chains as a whole and
// searches only the ring, so that its time is bounded. A source may have completions of several queue
// pairs: that of a shared receive queue of XRC. When one of them is reset, Drop removes its completions
// from the ring, and those in chains when they are to be polled.
//
// A queue takes memory for the completions that are in it, not for its depth: programs make deep
// queues and use a small part of them. Ring and chains grow in large steps, so that few pushes
// allocate.
package cq

import (
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// maxDepth is the largest depth of a queue.
const maxDepth = 1 << 22

// maxDropped is the largest number of queue pairs whose completions in chains are dropped.
const maxDropped = 1 << 12

type arming uint8

const (
	unarmed arming = iota
	armedSolicited
	armedAny
)

// CQ is a completion queue.
type CQ struct {
	id      uint32
	depth   int
	ring    ring
	chains  chains
	places  places // memory of the completions in chains
	pushed  uint64 // number of completions pushed so far
	armed   arming
	fired   bool // what Fired returns
	lenient bool // completions that do not fit are lost without an error
	// dropped has the queue pairs whose completions in chains are dropped: those that were pushed before
	// the number.
	dropped map[wire.QPN]uint64
	moderation
}

// New returns an empty queue for depth completions.
func New(depth int) (*CQ, error) {
	if depth < 1 || depth > maxDepth {
		return nil, verbs.Errorf("create cq", verbs.ErrInvalid, "depth %d; choose 1 to %d", depth, maxDepth)
	}
	return newCQ(depth, maxRing), nil
}

// newCQ returns an empty queue whose ring has at most maxRing entries. If all completions fit into
// the ring, there are no chains. The queue has no memory for completions yet: it gets it when they
// come.
func newCQ(depth, maxRing int) *CQ {
	return &CQ{depth: depth, ring: ring{most: min(depth, maxRing)}}
}

// SetID sets the queue's number in asynchronous events. The engine chooses it.
func (c *CQ) SetID(id uint32) { c.id = id }

func (c *CQ) ID() uint32 { return c.id }

func (c *CQ) Cap() int { return c.depth }

func (c *CQ) Len() int { return c.ring.n + c.places.taken }

// Source returns a new source, which is empty.
func (c *CQ) Source() *Source { return &Source{c: c} }

// Poll moves up to len(wc) completions to wc, oldest first, and returns their number.
func (c *CQ) Poll(wc []verbs.WC) int {
	if c.ring.n == 0 && len(c.chains) == 0 {
		return 0
	}
	return c.poll(wc)
}

// poll does the work of Poll. The queue is not empty.
func (c *CQ) poll(wc []verbs.WC) int {
	n := c.ring.poll(wc)
	if len(c.chains) > 0 {
		n += c.pollChains(wc[n:])
	}
	return n
}

// pollChains moves up to len(wc) completions from the sources' chains to wc, and returns their
// number. A chain has the completions of a source that are not in the ring.
func (c *CQ) pollChains(wc []verbs.WC) (n int) {
	for n < len(wc) && len(c.chains) > 0 {
		if _, one := c.unchain(); one != nil {
			wc[n] = *one
			n++
		}
	}
	return n
}

// unchain removes the oldest of the completions that are in chains instead of the ring, and returns
// it with its source; nil if it is dropped. The memory of the result is valid until the next Push.
func (c *CQ) unchain() (*Source, *verbs.WC) {
	s := c.chains[0].s
	at := s.head
	p := c.places.at(at)
	s.head = p.next
	c.places.free(at, at, 1)
	s.n--
	c.shift(s)
	if len(c.dropped) == 0 {
		return s, &p.wc
	}
	before := c.dropped[p.wc.QPN]
	if len(c.chains) == 0 {
		c.dropped = nil
	}
	if p.pushed < before {
		return s, nil
	}
	return s, &p.wc
}

// Drop removes the completions of queue pair n that were pushed so far; the others keep their order.
// Purge does so for a queue pair with sources of its own. Those that do not fit into the ring count as
// completions of the queue until they would be polled. Of more than maxDropped queue pairs that are reset
// while nothing is polled, these completions stay.
func (c *CQ) Drop(n wire.QPN) {
	c.ring.purge(func(e *entry) bool { return e.wc.QPN == n })
	if len(c.chains) == 0 || len(c.dropped) >= maxDropped {
		return
	}
	if c.dropped == nil {
		c.dropped = make(map[wire.QPN]uint64)
	}
	c.dropped[n] = c.pushed
}

// shift moves the first chain to its new place in the heap. It is called when the oldest completion
// of this chain was removed.
func (c *CQ) shift(s *Source) {
	if s.n == 0 {
		c.chains.remove(0)
		return
	}
	c.chains[0].oldest = c.places.at(s.head).pushed
	c.chains.down(0)
}

// Arm requests one event. If solicited is false, the next completion raises it. If solicited is
// true, the next completion that is solicited or has failed raises it. Moderate can delay the
// event. Completions that are already in the queue raise no event: call Poll once more after Arm.
// If the queue is already armed for any completion, Arm(true) does not change that.
func (c *CQ) Arm(solicited bool) {
	if solicited {
		c.armed = max(c.armed, armedSolicited)
	} else {
		c.armed = armedAny
	}
}

// Fired reports whether the requested event was raised since the last call of Fired.
func (c *CQ) Fired() bool {
	f := c.fired
	c.fired = false
	return f
}

// Counted returns how many completions were pushed so far, also those that did not fit into a queue
// that ignores overruns.
func (c *CQ) Counted() uint64 { return c.pushed }

// IgnoreOverrun makes the queue lose completions that do not fit, without an error. It is for
// queues whose completions are only counted (see Counted) and never polled.
func (c *CQ) IgnoreOverrun() { c.lenient = true }
