// Package cq is the completion queue: a bounded ring of work completions that the NIC fills and an application
// empties, with arming and overflow.
//
// A CQ belongs to one engine and is as single-threaded as that. It wakes nobody: the engine asks Fired after each
// step and tells whoever waits. A full queue loses the newest completion, never an older one, and is in error
// from then on (IBTA 10.10: an overrun is an affiliated asynchronous error of the queue).
package cq

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// MaxDepth bounds the entries of one queue.
const MaxDepth = 1 << 22

type arming uint8

const (
	unarmed arming = iota
	armedSolicited
	armedAny
)

// CQ is a completion queue.
type CQ struct {
	id      uint32
	ring    []verbs.WC
	head, n int
	armed   arming
	fired   bool
	overrun bool
}

// New returns an empty queue of depth entries. The id is the engine's and appears in asynchronous events.
func New(id uint32, depth int) (*CQ, error) {
	if depth < 1 || depth > MaxDepth {
		return nil, &verbs.OpError{Op: "create cq", Err: verbs.ErrInvalid, Detail: fmt.Sprintf("depth %d; choose 1 to %d", depth, MaxDepth)}
	}
	return &CQ{id: id, ring: make([]verbs.WC, depth)}, nil
}

// ID returns the number given to New.
func (c *CQ) ID() uint32 { return c.id }

// Cap returns the depth.
func (c *CQ) Cap() int { return len(c.ring) }

// Len returns how many completions wait.
func (c *CQ) Len() int { return c.n }

// Push appends wc. False says that the queue was full: wc is lost and the queue is in error.
func (c *CQ) Push(wc verbs.WC) bool {
	if c.n == len(c.ring) {
		c.overrun = true
		return false
	}
	i := c.head + c.n
	if i >= len(c.ring) {
		i -= len(c.ring)
	}
	c.ring[i] = wc
	c.n++
	// An event that asks for solicited ones is also due for a failure (IBTA 11.4.2).
	if c.armed == armedAny || (c.armed == armedSolicited && (wc.Solicited || wc.Status != verbs.Success)) {
		c.armed, c.fired = unarmed, true
	}
	return true
}

// Poll moves up to len(wc) completions, oldest first, and returns how many.
func (c *CQ) Poll(wc []verbs.WC) int {
	k := min(len(wc), c.n)
	for i := range k {
		wc[i] = c.ring[c.head]
		if c.head++; c.head == len(c.ring) {
			c.head = 0
		}
	}
	c.n -= k
	return k
}

// Arm asks for one event at the next completion that is pushed (the next solicited or failed one, if solicited).
// What is in the queue already fires nothing: poll once more after arming. Arming for any completion is not
// weakened by arming for solicited ones.
func (c *CQ) Arm(solicited bool) {
	if solicited {
		c.armed = max(c.armed, armedSolicited)
	} else {
		c.armed = armedAny
	}
}

// Fired reports an event since the last call, and takes it.
func (c *CQ) Fired() bool {
	f := c.fired
	c.fired = false
	return f
}

// Overrun reports that a completion was lost. It stays true.
func (c *CQ) Overrun() bool { return c.overrun }

// Purge removes the completions of a queue pair that is reset or destroyed, and keeps the order of the others.
func (c *CQ) Purge(qpn wire.QPN) {
	kept := 0
	for i := range c.n {
		wc := c.ring[(c.head+i)%len(c.ring)]
		if wc.QPN != qpn {
			c.ring[(c.head+kept)%len(c.ring)] = wc
			kept++
		}
	}
	c.n = kept
}
