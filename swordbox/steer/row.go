package steer

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// row is the requests of one connection: the last ones that were looked at, by PSN.
type row struct {
	ring []decision
	// held is the append that waits; none: no one does. It is the last request that was taken.
	held int32
}

// kind is what a decision is about.
type kind uint8

const (
	kindNone kind = iota
	kindAppend
	kindRead
	kindSuper
)

// decision is what became of a request.
type decision struct {
	kind kind
	// steered says that it went to another address than it asked for. done says that its answer was seen.
	steered, done bool
	psn           wire.PSN
	rkey          uint32
	// asked is the address that the client named; to is the node that it went to.
	asked uint64
	to    ref
	// seen is the version that the client believes the node to have, version that of the node that it went to: if they differ, the
	// answer is translated.
	seen, version layout.Version
	// format is that of the node that a READ returns.
	format layout.Format
	// Of an append: the operand that its success shows, as it was sent and as its client asked, the chain, what was known of it
	// when it was sent (gen, seq), and a number of its own.
	compare, askedCompare uint64
	key                   uint64
	chainLife             uint32
	gen                   uint64
	seq                   uint32
	sent                  uint64
	// stale says that the entry that the client named has been used again since: there it must fail.
	stale bool
	// node is the one that it appends; none: one that the switch did not see.
	node ref
	// server is for superblocks.
	server netip.Addr
}

// find returns the decision about a PSN; nil if there was none, or it is forgotten.
func (w *row) find(psn wire.PSN) *decision {
	d := &w.ring[int(psn)%len(w.ring)]
	if d.kind == kindNone || d.psn != psn {
		return nil
	}
	return d
}

// add makes room for the decision about a PSN.
func (w *row) add(psn wire.PSN, k kind) *decision {
	d := &w.ring[int(psn)%len(w.ring)]
	*d = decision{kind: k, psn: psn}
	return d
}
