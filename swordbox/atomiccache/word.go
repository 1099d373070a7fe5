package atomiccache

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// Key names a word: the number that the caller has given to the server, and the address in the
// server's memory.
type Key struct {
	Server uint16
	VA     uint64
}

// Word is what the switch knows about one word of memory. It belongs to a Table.
type Word struct {
	Key
	State State
	// Value is the value that the word will have after all operations that the switch has sent. It
	// is valid in state Known.
	Value uint64
	// Epoch counts how often the value has become unknown. The response to an operation of an
	// earlier epoch does not show the present value.
	Epoch uint32
	// Literal is true if the server refuses a WRITE to the word under an R_Key under which it
	// executes atomics. The switch then sends operations on the shared connection unchanged.
	Literal bool
	// until, in state Busy, is when Config.Patience ends; in state Pass, it is the time before
	// which the word must not leave Pass.
	until clock.Time

	proven provenKey
	client clientOps
	switchOps
	waiters
	tableEntry
}

// tableEntry holds what the Table needs to find the word by its page, to evict it, and to recognise
// operations that were sent before the word was created.
type tableEntry struct {
	t      *Table
	slot   uint32
	next   uint32     // the next word of the same page, as its slot plus one
	used   bool       // true if the word was used since Table.evict last looked at it
	serial uint64     // the table's serial when the word was created
	born   clock.Time // when the word was created
}

// provenKey is the R_Key under which an atomic succeeded last; it is valid if ok is true.
type provenKey struct {
	rkey uint32
	ok   bool
}

// clientOps counts the operations in flight on clients' connections. It counts them by the interval
// of length Config.Budget in which they were sent: the present interval and the one before. An
// older operation can no longer reach the server.
type clientOps struct {
	count  [2]uint32 // index is the interval modulo 2
	window uint32    // the present interval
}

// interval returns the number of the interval of length Config.Budget that contains the time now.
func (t *Table) interval(now clock.Time) uint32 { return uint32(now / clock.Time(t.cfg.Budget)) }

func (o *clientOps) pending() uint32 { return o.count[0] + o.count[1] }

// age makes window the present interval, and drops the counts of operations that no NIC can
// retransmit now.
func (o *clientOps) age(window uint32) {
	switch window - o.window {
	case 0:
	case 1:
		o.count[window&1] = 0
	default:
		o.count = [2]uint32{}
	}
	o.window = window
}

// counts reports whether an operation that was sent in the interval with the number window is still
// counted.
func (o *clientOps) counts(window uint32) bool { return o.window-window <= 1 }

// end takes one operation out of the counts. The operation was sent in the interval with the number
// `window`.
func (o *clientOps) end(window uint32) {
	if o.counts(window) && o.count[window&1] > 0 {
		o.count[window&1]--
	}
}

// switchOps counts the operations in flight on the shared connection.
type switchOps struct {
	// Pending is the number of operations in flight on the shared connection.
	Pending int
	changes int        // how many of the operations in flight may change the word
	heard   clock.Time // when the server last answered one of these operations
	lastSeq uint32     // sequence number of the last operation sent
}

// waiters says which operations on the word wait in the switch.
type waiters struct {
	awaited bool // the decision about an operation was Wait, so Changed must return the word
	wanted  bool // a CAS waits until the value changes; see Word.Await
}

// Decision says how the switch sends one operation to the server (Kind). The caller keeps it with
// the request until the operation has ended.
type Decision struct {
	Kind Kind
	// Value is the value that a Write writes.
	Value uint64
	// Prior is the value of the word before a Write or EmptyWrite. The response to the client's
	// atomic must show it as the original value.
	Prior uint64
	// Epoch is the epoch of the word when the decision was made.
	Epoch uint32

	op      wire.Opcode // opcode of an atomic; 0 means another operation
	rkey    uint32
	compare uint64
	operand uint64 // swap value or addend
	seq     uint32 // on the shared connection: Word.lastSeq when the operation was sent
	window  uint32 // on the client's connection: number of the interval (Table.interval) in which the operation was sent
	serial  uint64 // on the client's connection: Table.serial when the decision was made
}

// Decide decides how a new CAS or FAA under rkey travels. clean is the clean time of all flows to
// the server: the server has answered all requests that the switch forwarded on clients'
// connections before that time; see Grace.
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
	if d.Value = transform.Result(op, compare, swapOrAdd, w.Value); op == wire.RCFetchAdd || compare == w.Value {
		w.step(now, evHit, &d)
	} else {
		w.step(now, evMiss, &d)
	}
	w.become(d.Value)
	return d
}

// become records v as the value of the word after the last operation sent.
func (w *Word) become(v uint64) {
	if w.Value == v {
		return
	}
	w.Value = v
	w.want()
}

// want makes Table.Changed return the word if a CAS waits for another value of the word.
func (w *Word) want() {
	if w.wanted {
		w.wanted, w.awaited = false, true
		w.tell()
	}
}

// Tell returns the value with which the switch itself may answer a CAS under rkey, because the CAS
// fails. ok is false if the switch must not answer it. The switch may answer if the CAS would fail,
// the server has acknowledged every operation that could have changed the value, and its last
// response to an operation on the word is not older than Config.Fresh. Then no operation that
// changes the word is in flight, and the memory of the server holds this value. So the response is
// right even if the switch crashes.
func (w *Word) Tell(now clock.Time, rkey uint32, compare uint64) (value uint64, ok bool) {
	w.look(now)
	if w.State != Known || w.changes != 0 || compare == w.Value || !w.Proven(rkey) || now-w.heard > clock.Time(w.t.cfg.Fresh) {
		return 0, false
	}
	return w.Value, true
}

// Await reports whether the switch knows that a new CAS under rkey would fail now. If so,
// Table.Changed returns the word when the value has changed.
func (w *Word) Await(now clock.Time, rkey uint32, compare uint64) bool {
	w.look(now)
	if w.State != Known || compare == w.Value || !w.Proven(rkey) {
		return false
	}
	w.wanted = true
	return true
}

// Touch decides how a new WRITE travels. The WRITE has one packet and no immediate data, and
// changes the word as piece says. If the WRITE also touches words whose operations travel on
// another connection, the caller uses Table.ClientAll instead.
func (w *Word) Touch(now clock.Time, rkey uint32, piece transform.Piece) (d Decision) {
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

// Foreign decides how a new operation on the word travels if only the client's connection may carry
// it: a WRITE of several packets or with immediate data, or an operation that the switch does not
// know.
func (w *Word) Foreign(now clock.Time) (d Decision) {
	w.look(now)
	w.step(now, evForeign, &d)
	return d
}

// step makes the transition of the word's state for event `on`, an operation on the word, and
// completes the decision on how the operation travels.
func (w *Word) step(now clock.Time, on event, d *Decision) {
	d.Kind = w.follow(now, on)
	d.Epoch = w.Epoch
	switch d.Kind {
	case Client:
		w.client.count[w.client.window&1]++
		w.t.serial++
		d.window, d.serial = w.client.window, w.t.serial
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

// tell makes Table.Changed return the word if operations on it wait.
func (w *Word) tell() {
	if w.awaited {
		w.t.due.Set(w.slot, 0)
	}
}

// follow changes the state by the edge for an event, and returns how the operation travels. An
// event without an edge changes nothing.
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

// enter puts the word into state `to`.
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

// occupied reports whether an operation is in flight on the connections that must be empty before
// the word can leave its state. These are clients' connections in Pass and Busy, and the shared
// connection otherwise.
func (w *Word) occupied() bool {
	if w.State == Pass || w.State == Busy {
		return w.client.pending() != 0
	}
	return w.Pending != 0
}

// look applies the changes that are due at the time now: it drops the counts of operations that no
// NIC can retransmit any more, and a word leaves Busy if nothing is in flight on clients'
// connections, or if Config.Patience has passed.
func (w *Word) look(now clock.Time) {
	w.used = true
	w.client.age(w.t.interval(now))
	if w.State != Busy {
		return
	}
	if !w.occupied() {
		w.follow(now, evDrained)
	} else if now >= w.until {
		w.follow(now, evPatience)
	}
}
