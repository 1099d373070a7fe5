package words

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/rewrite"
)

// Key names a word: a number that the caller gives a server, and the address in its memory.
type Key struct {
	Server uint16
	VA     uint64
}

// Word is what the switch knows of one word. It belongs to a Table.
type Word struct {
	Key
	State State
	// Value is what the word holds behind everything that was sent to it; it means something in Known.
	Value uint64
	// Epoch counts how often the value became uncertain. What was sent in an older epoch tells nothing.
	Epoch uint32
	// Literal says that the server refuses WRITEs to the word under the keys that it takes atomics from: its
	// operations travel on the shared connection as they are.
	Literal bool
	// Pending is how many operations on the shared connection have not been ended.
	Pending int

	changes int        // of them, those that may change the word
	heard   clock.Time // when the server last answered one
	t       *Table
	slot    uint32
	next    uint32 // of the same page: slot plus one
	used    bool   // since the last look for a word to give up
	awaited bool   // somebody was told to wait
	wanted  bool   // somebody waits for another value
	key     uint32 // the one that has worked last, if proven
	proven  bool
	own     [2]uint32
	window  uint32
	serial  uint64     // of the table, when the word was made
	born    clock.Time // when the word was made
	until   clock.Time // Busy: end of patience; Pass: not to be left before
	lastSeq uint32     // of the last operation sent on the shared connection
}

// Decision is the fate of one operation. It is to be kept with the request until the request has ended.
type Decision struct {
	Kind Kind
	// Value is what a Write writes.
	Value uint64
	// Prior is what the word holds when a Write or EmptyWrite is executed: the answer to the atomic.
	Prior uint64
	// Epoch of the word.
	Epoch uint32

	op      wire.Opcode // an atomic's; 0: a WRITE
	rkey    uint32
	compare uint64
	operand uint64
	seq     uint32
	window  uint32
	serial  uint64
}

// result is what an atomic leaves of old.
func result(op wire.Opcode, compare, swapOrAdd, old uint64) uint64 {
	switch {
	case op == wire.RCFetchAdd:
		return old + swapOrAdd
	case old == compare:
		return swapOrAdd
	}
	return old
}

// Decide decides about a new CAS or FAA under a key. clean is a time before which everything that was forwarded to
// the server on own connections has been answered; see Grace.
func (w *Word) Decide(now, clean clock.Time, rkey uint32, op wire.Opcode, compare, swapOrAdd uint64) (d Decision) {
	w.look(now)
	d.op, d.rkey, d.compare, d.operand = op, rkey, compare, swapOrAdd
	switch {
	case !w.Proven(rkey), w.State == Pass && (now < w.until || clean <= w.born):
		w.step(now, evForeign, &d)
		return d
	case w.State != Known:
		w.step(now, evAtomic, &d)
		return d
	}
	d.Prior = w.Value
	if d.Value = result(op, compare, swapOrAdd, w.Value); op == wire.RCFetchAdd || compare == w.Value {
		w.step(now, evHit, &d)
	} else {
		w.step(now, evMiss, &d)
	}
	w.become(d.Value)
	return d
}

// become notes the value behind what was sent last.
func (w *Word) become(v uint64) {
	if w.Value == v {
		return
	}
	w.Value = v
	w.want()
}

// want has Table.Changed return the word, if somebody waits for another value.
func (w *Word) want() {
	if w.wanted {
		w.wanted, w.awaited = false, true
		w.tell()
	}
}

// Tell is the value that a new CAS under a key finds which the server need not see: the CAS fails, and the server has acknowledged
// everything that could have given the word another value, the last thing not long ago. Nothing of the word is on its way
// that changes it, so the memory holds the value now, and the answer is right whatever becomes of the switch.
func (w *Word) Tell(now clock.Time, rkey uint32, compare uint64) (value uint64, ok bool) {
	w.look(now)
	if w.State != Known || w.changes != 0 || compare == w.Value || !w.Proven(rkey) || now-w.heard > clock.Time(w.t.cfg.Fresh) {
		return 0, false
	}
	return w.Value, true
}

// Await reports whether a new CAS under a key would fail now. Then Table.Changed returns the word when that may be different.
func (w *Word) Await(now clock.Time, rkey uint32, compare uint64) bool {
	w.look(now)
	if w.State != Known || compare == w.Value || !w.Proven(rkey) {
		return false
	}
	w.wanted = true
	return true
}

// Touch decides about a new WRITE of one packet without immediate data that touches the word: piece is what it does
// to it. If the WRITE touches other words, too, that do not travel on the same connection, it is for OwnAll.
func (w *Word) Touch(now clock.Time, rkey uint32, piece rewrite.Piece) (d Decision) {
	w.look(now)
	d.rkey = rkey
	switch {
	case !w.Proven(rkey):
		w.step(now, evForeign, &d)
		return d
	case w.Literal, !piece.Whole() && w.State != Known:
		w.step(now, evWritePart, &d)
		return d
	}
	if w.step(now, evWriteWhole, &d); d.Kind == Shared {
		w.become(piece.Apply(w.Value))
	}
	return d
}

// Foreign decides about a new operation on the word that only the client's own connection may carry: a WRITE of
// several packets or with immediate data, an operation that the switch does not know.
func (w *Word) Foreign(now clock.Time) (d Decision) {
	w.look(now)
	w.step(now, evForeign, &d)
	return d
}

// step follows an edge for an operation.
func (w *Word) step(now clock.Time, on event, d *Decision) {
	d.Kind = w.follow(now, on)
	d.Epoch = w.Epoch
	switch d.Kind {
	case Own:
		w.own[w.window&1]++
		w.t.serial++
		d.window, d.serial = w.window, w.t.serial
	case Shared, Write, EmptyWrite:
		w.Pending++
		if d.Kind != EmptyWrite {
			w.changes++
		}
		w.lastSeq++
		d.seq = w.lastSeq
	case Wait:
		w.awaited = true
		w.t.counters.Waits++
	}
}

// tell has Table.Changed return the word, if anybody waits.
func (w *Word) tell() {
	if w.awaited {
		w.t.due.Set(w.slot, 0)
	}
}

// follow follows an edge. What has no edge changes nothing.
func (w *Word) follow(now clock.Time, on event) Kind {
	i := 0
	if w.occupied() {
		i = 1
	}
	c := &diagram[w.State][on][i]
	if !c.ok {
		return Wait
	}
	if c.to != w.State {
		w.enter(now, c.to)
	}
	return c.does
}

// enter changes the state.
func (w *Word) enter(now clock.Time, to State) {
	from := w.State
	w.State = to
	switch {
	case to == Busy:
		w.until = now.Add(w.t.cfg.Patience)
	case to == Pass && from == Busy:
		w.until = now.Add(w.t.cfg.HoldOff)
	case to == Pass:
		w.until = now
	}
	if to == Busy {
		w.t.due.Set(w.slot, w.until)
	} else if from == Busy {
		w.t.due.Remove(w.slot)
		w.tell()
	}
	if from == Unknown {
		w.tell()
	}
	if from == Known {
		w.want()
	}
}

// occupied reports whether something is on its way in the place that must be empty for the word to change: an own
// connection in Pass and Busy, the shared one otherwise.
func (w *Word) occupied() bool {
	if w.State == Pass || w.State == Busy {
		return w.own[0]+w.own[1] != 0
	}
	return w.Pending != 0
}

// look brings the word up to now.
func (w *Word) look(now clock.Time) {
	w.used = true
	w.age(now)
	if w.State != Busy {
		return
	}
	if !w.occupied() {
		w.follow(now, evDrained)
	} else if now >= w.until {
		w.follow(now, evPatience)
	}
}

// age forgets operations on own connections that no NIC tries any more: what has been on its way for longer than that is
// not counted.
func (w *Word) age(now clock.Time) {
	cur := uint32(now / clock.Time(w.t.cfg.Budget))
	switch cur - w.window {
	case 0:
	case 1:
		w.own[cur&1] = 0
	default:
		w.own = [2]uint32{}
	}
	w.window = cur
}
