package hard

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/words"
)

// ownOp is an operation on the own connection whose end somebody wants to know: a word, all words of a range, or the
// table of keys.
type ownOp struct {
	end wire.PSN // first PSN of the own connection behind it
	// word and decision; all says that decision is that of words.Table.OwnAll for n bytes at va.
	word     *words.Word
	decision words.Decision
	all      bool
	// prove says that its success proves a right on n bytes at va under rkey.
	prove bool
	right right
	va    uint64
	n     uint32
	rkey  uint32
}

// ownOps is a ring of them in the order of their ends.
type ownOps struct {
	ring       []ownOp
	head, tail uint32
	max        int
}

func (o *ownOps) at(pos uint32) *ownOp { return &o.ring[pos&uint32(len(o.ring)-1)] }

func (o *ownOps) room() bool { return int(o.tail-o.head) < o.max }

// add appends a cleared one. The caller has asked for room.
func (o *ownOps) add() *ownOp {
	if int(o.tail-o.head) == len(o.ring) {
		ring := make([]ownOp, max(4, 2*len(o.ring)))
		for pos := o.head; pos != o.tail; pos++ {
			ring[pos&uint32(len(ring)-1)] = *o.at(pos)
		}
		o.ring = ring
	}
	op := o.at(o.tail)
	*op = ownOp{}
	o.tail++
	return op
}
