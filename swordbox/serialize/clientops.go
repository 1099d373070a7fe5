package serialize

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
)

// clientOp is an operation in flight on the client's connection. The switch remembers it until the
// server acknowledges it or the connection fails. Then the switch updates what it knows: of one
// word, of all words of a range, or of the memory to which an R_Key is proven to give access (keys).
type clientOp struct {
	// Of the extent, end is always valid. first is valid if all is true; va and n are valid if all
	// or prove is true.
	extent
	// word is the word of an operation on one word. decision is the word's decision about the
	// operation. If all is true, the operation concerns all words in the extent: word is nil, and
	// decision is the result of atomiccache.Table.ClientAll.
	word     *atomiccache.Word
	decision atomiccache.Decision
	all      bool
	// prove is true if the success of the operation proves that R_Key rkey gives the access right
	// `right` on the bytes of the extent.
	prove bool
	right right
	rkey  uint32
}

// clientOps holds the operations in flight on a client's connection in a ring, in the order of the
// PSNs at which they end.
type clientOps struct {
	ring       []clientOp
	head, tail uint32
	max        int
}

func (o *clientOps) at(pos uint32) *clientOp { return &o.ring[pos&uint32(len(o.ring)-1)] }

func (o *clientOps) room() bool { return int(o.tail-o.head) < o.max }

// add appends a zeroed operation and returns it. The caller has checked room.
func (o *clientOps) add() *clientOp {
	if int(o.tail-o.head) == len(o.ring) {
		ring := make([]clientOp, max(4, 2*len(o.ring)))
		for pos := o.head; pos != o.tail; pos++ {
			ring[pos&uint32(len(ring)-1)] = *o.at(pos)
		}
		o.ring = ring
	}
	op := o.at(o.tail)
	*op = clientOp{}
	o.tail++
	return op
}

// countedBy reports whether word w already waits until all requests before `end` are acknowledged.
// That is so if w counts an operation in flight that ends at `end` or later, because the server
// acknowledges requests in order.
func (o *clientOps) countedBy(now clock.Time, w *atomiccache.Word, end wire.PSN) bool {
	for pos := o.head; pos != o.tail; pos++ {
		op := o.at(pos)
		touches := op.word == w || op.all && w.Touches(op.va, op.n)
		if touches && wire.Diff(op.end, end) >= 0 && w.Counts(now, op.decision) {
			return true
		}
	}
	return false
}

// newest returns the operation that was added last; nil if there is none.
func (o *clientOps) newest() *clientOp {
	if o.head == o.tail {
		return nil
	}
	return o.at(o.tail - 1)
}

// messageAt returns the newest operation that concerns all words of a known range of memory
// (clientOp.all) and whose PSNs include psn. It returns nil if there is none.
func (o *clientOps) messageAt(psn wire.PSN) *clientOp {
	for pos := o.tail; pos != o.head; pos-- {
		op := o.at(pos - 1)
		if op.all && op.n != atomiccache.Everything && wire.Diff(psn, op.first) >= 0 && wire.Diff(psn, op.end) < 0 {
			return op
		}
	}
	return nil
}
