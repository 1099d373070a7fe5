package serialize

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// asked holds the fields of a request that a duplicate must repeat, as the client sent them.
type asked struct {
	op               wire.Opcode
	va               uint64
	rkey             uint32
	length           uint32 // length of the request in bytes
	compare, operand uint64 // see operands
}

// record describes a moved request, or a READ, atomic or FLUSH on the client's connection. The
// switch makes the record when it sends or answers the request. From the record it answers a
// duplicate (hole 14), or has a READ executed again.
type record struct {
	psn wire.PSN // the request's PSN at the client
	own wire.PSN // its first PSN on the client's connection, if place is placeOwn
	asked
	span  int // how many PSNs the request takes
	place int16
	state recordState
	// ackReq is true if the client set AckReq in the request.
	ackReq bool
	// got is the index of the furthest packet of a READ's response that the switch has forwarded,
	// plus 1. The last packet does not count. Packets before the furthest may have been lost.
	got   int
	prior uint64 // the original value that an atomic returns
	// word is the word that the request concerns; nil if there is none. decision is the word's
	// decision about the request.
	word     *atomiccache.Word
	decision atomiccache.Decision
}

// isSame reports whether a request can be a duplicate of the recorded one. A duplicate READ may ask
// for only a part of the bytes.
func (r *record) isSame(f *wire.Frame) bool {
	va, n, rkey := target(f)
	switch {
	case r.op != f.BTH.Opcode || r.rkey != rkey:
		return false
	case r.op.Is(wire.OpRead):
		return va-r.va <= uint64(r.length) && n <= r.length
	case r.op.Is(wire.OpAtomic):
		compare, operand := operands(f)
		return va == r.va && compare == r.compare && operand == r.operand
	}
	return va == r.va && n == r.length
}

func (r *record) covers(psn wire.PSN) bool {
	d := wire.Diff(psn, r.psn)
	return d >= 0 && int(d) < r.span
}

// isResult reports whether the client needs a response to this very request: a later
// acknowledgement cannot replace it.
func (r *record) isResult() bool { return r.op.Is(wire.OpAnswered) }

// window is a ring of records in PSN order. The server has answered the records in [head, open);
// those in [open, tail) wait for its answer.
//
// The window keeps at least the newest `max` records, and also the newest `max` READs and atomics,
// even if there are WRITEs between them: a client that has lost an answer sends that request and
// all later ones again, up to 2^23 PSNs. No queue pair has more READs and atomics in flight than
// rules.MaxDepth. A WRITE needs no record, because its duplicate always has the same outcome (IBTA
// C9-105).
type window struct {
	ring             []record
	head, open, tail uint32
	max              int
	// first is the PSN of the oldest record, if there is one. results is how many records are of
	// READs and atomics.
	first   wire.PSN
	results int
	// redos is how many records have the state redoing or redoingMoved, owed how many have the
	// state owed.
	redos, owed int
}

const (
	minWindow = 8
	// sparse bounds the ring to sparse times max slots. READs and atomics with many WRITEs between
	// them need the additional slots. When the bound is reached, compact frees at least half of the
	// slots.
	sparse = 4
	// Records stay younger than maxAge, in PSNs. A PSN of this age would be taken for a newer one.
	maxAge = 1 << 23
)

func (w *window) at(pos uint32) *record { return &w.ring[pos&uint32(len(w.ring)-1)] }

// room reports whether add has room for a record.
func (w *window) room() bool { return int(w.tail-w.open) < w.max }

// outstanding returns how many records wait for the server's answer.
func (w *window) outstanding() int { return int(w.tail - w.open) }

// remember adds the record of a request that is about to be sent and takes span PSNs.
func (w *window) remember(f *wire.Frame, span, place int) *record {
	r := w.add(f.BTH.PSN, f.BTH.Opcode)
	r.span, r.ackReq, r.place = span, f.BTH.AckReq, int16(place)
	r.va, r.length, r.rkey = target(f)
	r.compare, r.operand = operands(f)
	return r
}

// operands returns the compare value and the operand of an atomic. For an ATOMIC_WRITE the operand
// is the word that it writes, or the part of the word that is in the packet.
func operands(f *wire.Frame) (compare, operand uint64) {
	if f.BTH.Opcode == wire.RCAtomicWrite {
		return 0, transform.PieceOf(f, f.RETH.VA).Bits
	}
	return f.AtomicETH.Compare, f.AtomicETH.SwapOrAdd
}

// add appends an empty record and returns it; for that it may evict an answered record. The caller
// has checked room.
func (w *window) add(psn wire.PSN, op wire.Opcode) *record {
	if int(w.tail-w.head) == len(w.ring) {
		w.makeRoom(op)
	}
	if w.head == w.tail {
		w.first = psn
	}
	r := w.at(w.tail)
	*r = record{psn: psn, asked: asked{op: op}}
	if r.isResult() {
		w.results++
	}
	w.tail++
	return r
}

// makeRoom makes room in the ring for the record of a request with opcode op.
func (w *window) makeRoom(op wire.Opcode) {
	kept := w.results
	if op.Is(wire.OpAnswered) {
		kept++
	}
	switch {
	case len(w.ring) < w.max:
		w.grow()
	case !w.at(w.head).isResult() || kept > w.max:
		w.evict()
	case len(w.ring) < sparse*w.max:
		w.grow()
	default:
		w.compact()
	}
}

func (w *window) grow() {
	ring := make([]record, max(minWindow, 2*len(w.ring)))
	for pos := w.head; pos != w.tail; pos++ {
		ring[pos&uint32(len(ring)-1)] = *w.at(pos)
	}
	w.ring = ring
}

// evict removes the oldest record, whose request has been answered.
func (w *window) evict() {
	w.forget(w.at(w.head))
	w.head++
	if w.head != w.tail {
		w.first = w.at(w.head).psn
	}
}

// forget subtracts a record from the counts when the record is removed.
func (w *window) forget(r *record) {
	w.count(r.state, -1)
	if r.isResult() {
		w.results--
	}
}

// compact removes the records of WRITEs, except those among the newest max records. None of the
// removed ones waits for an answer.
func (w *window) compact() {
	to := w.tail - uint32(w.max)
	for pos := to; pos != w.head; pos-- {
		r := w.at(pos - 1)
		if !r.isResult() {
			w.forget(r)
			continue
		}
		to--
		*w.at(to) = *r
	}
	w.head = to
	w.first = w.at(to).psn
}

// age evicts the answered records that would be too old (maxAge) after n more PSNs. next is the
// first of these PSNs.
func (w *window) age(next wire.PSN, n int) {
	for w.head != w.open && int(wire.Diff(next, w.first))+n >= maxAge {
		w.evict()
	}
}

// count adds `by` to the counter for a record state: redos or owed.
func (w *window) count(s recordState, by int) {
	switch {
	case s.isRedo():
		w.redos += by
	case s == owed:
		w.owed += by
	}
}

// follow changes the state of a record by an event. It also updates redos and owed, the counters of
// records in certain states.
func (w *window) follow(r *record, e recordEvent) {
	w.count(r.state, -1)
	r.state = r.state.on(e)
	w.count(r.state, 1)
}

// waitsForRedo reports whether a READ before psn is being executed again.
func (w *window) waitsForRedo(psn wire.PSN) bool {
	for pos := w.head; w.redos > 0 && pos != w.tail; pos++ {
		if q := w.at(pos); q.state.isRedo() {
			return wire.Diff(q.psn, psn) < 0
		}
	}
	return false
}

// near is how many records find examines one by one before it uses binary search.
const near = 8

// find returns the record whose PSNs include a client's PSN; nil if there is none.
func (w *window) find(psn wire.PSN) *record {
	lo, hi := w.head, w.tail
	for hi != lo && w.tail-hi < near {
		if d := wire.Diff(psn, w.at(hi-1).psn); d >= 0 {
			lo = hi - 1
			break
		}
		hi--
	}
	// If there is a record whose PSNs include psn, it is the last one in [lo, hi) that does not
	// begin behind psn.
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; wire.Diff(psn, w.at(mid).psn) >= 0 {
			lo = mid
		} else {
			hi = mid
		}
	}
	if lo != hi && w.at(lo).covers(psn) {
		return w.at(lo)
	}
	return nil
}

// onClient returns the record of the request whose PSNs on the client's connection include own; nil
// if there is none.
func (w *window) onClient(own wire.PSN) *record {
	for pos := w.tail; pos != w.head; pos-- {
		r := w.at(pos - 1)
		if d := wire.Diff(own, r.own); r.place == placeOwn && d >= 0 && int(d) < r.span {
			return r
		}
	}
	return nil
}

// hasResult reports whether the window has a record of a READ or an atomic with a PSN in [psn,
// end).
func (w *window) hasResult(psn, end wire.PSN) bool {
	for pos := w.head; pos != w.tail; pos++ {
		switch r := w.at(pos); {
		case wire.Diff(r.psn, end) >= 0:
			return false
		case r.isResult() && wire.Diff(r.psn, psn) >= 0:
			return true
		}
	}
	return false
}

// oldest returns the oldest record whose request has no answer; nil if there is none.
func (w *window) oldest() *record {
	if w.open == w.tail {
		return nil
	}
	return w.at(w.open)
}

// takeBack removes the unanswered records and returns the PSN of the first one. There must be at
// least one.
func (w *window) takeBack() wire.PSN {
	for pos := w.open; pos != w.tail; pos++ {
		w.forget(w.at(pos))
	}
	w.tail = w.open
	return w.at(w.open).psn
}

// finish records that the server has answered a request.
func (w *window) finish(r *record) {
	w.follow(r, evAnswered)
	for w.open != w.tail && w.at(w.open).state != inFlight {
		w.open++
	}
}
