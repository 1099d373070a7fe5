package hard

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/words"
)

// record is a request that has moved, or a READ or atomic on the own connection, from its arrival until it is too old to
// be asked for again. It holds what is needed to answer it once more (hole 14), and to send it anew as it was.
type record struct {
	psn  wire.PSN // the client's
	span int      // PSNs
	op   wire.Opcode
	// moved says that it is on the shared connection shard, else it is on the own one.
	moved bool
	shard uint8
	// done says that it has been answered by the server, to this switch at least.
	done bool
	// ackReq says that the client wants an acknowledgement.
	ackReq bool
	// redo says that a READ that was done is being executed again; owed that the answer waits for a redo before it.
	redo, owed bool
	// again says that a READ that has moved is under way once more.
	again bool
	// got is how many packets of the response to a READ have passed, if none of them was lost.
	got int

	va               uint64
	rkey             uint32
	length           uint32 // of a READ
	compare, operand uint64
	prior            uint64 // outcome of an atomic
	// word and decision, if it is about a word; word is nil otherwise.
	word     *words.Word
	decision words.Decision
}

// isSame reports whether a request can be the one that the record is of. A READ may ask for a part of what it asked for.
func (r *record) isSame(f *wire.Frame) bool {
	va, n, rkey := target(f)
	switch {
	case r.op != f.BTH.Opcode || r.rkey != rkey:
		return false
	case r.op.Is(wire.OpRead):
		return va-r.va <= uint64(r.length) && n <= r.length
	case r.op.Is(wire.OpAtomic):
		return va == r.va && f.AtomicETH.Compare == r.compare && f.AtomicETH.SwapOrAdd == r.operand
	}
	return va == r.va && n == r.length
}

func (r *record) covers(psn wire.PSN) bool {
	d := wire.Diff(psn, r.psn)
	return d >= 0 && int(d) < r.span
}

// window is a ring of records in PSN order. [head, open) are done, [open, tail) wait for their answer.
type window struct {
	ring             []record
	head, open, tail uint32
	max              int
	redos, owed      int // records with the flag
}

const minWindow = 8

func (w *window) at(pos uint32) *record { return &w.ring[pos&uint32(len(w.ring)-1)] }

// room reports whether add has a place.
func (w *window) room() bool { return int(w.tail-w.open) < w.max }

// outstanding is how many records wait for their answer.
func (w *window) outstanding() int { return int(w.tail - w.open) }

// add returns a cleared record behind the others. The caller has asked for room. A done one may have to go.
func (w *window) add() *record {
	if n := int(w.tail - w.head); n == len(w.ring) {
		if n < w.max {
			w.grow()
		} else {
			w.drop(w.at(w.head))
			w.head++
		}
	}
	r := w.at(w.tail)
	*r = record{}
	w.tail++
	return r
}

func (w *window) grow() {
	ring := make([]record, max(minWindow, 2*len(w.ring)))
	for pos := w.head; pos != w.tail; pos++ {
		ring[pos&uint32(len(ring)-1)] = *w.at(pos)
	}
	w.ring = ring
}

// drop takes the flags of a record back.
func (w *window) drop(r *record) {
	if r.redo {
		w.redos--
	}
	if r.owed {
		w.owed--
	}
	r.redo, r.owed = false, false
}

// find returns the record that covers a client's PSN; nil if there is none.
func (w *window) find(psn wire.PSN) *record {
	for pos := w.tail; pos != w.head; pos-- {
		r := w.at(pos - 1)
		if r.covers(psn) {
			return r
		}
		if wire.Diff(psn, r.psn) > 0 {
			return nil
		}
	}
	return nil
}

// oldest returns the oldest record without answer; nil if there is none.
func (w *window) oldest() *record {
	if w.open == w.tail {
		return nil
	}
	return w.at(w.open)
}

// takeBack forgets the records without answer, of which there is one at least, and returns the PSN of the first.
func (w *window) takeBack() wire.PSN {
	w.tail = w.open
	return w.at(w.open).psn
}

// finish marks a record done, and moves open.
func (w *window) finish(r *record) {
	r.done = true
	for w.open != w.tail && w.at(w.open).done {
		w.open++
	}
}
