package kv

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// History records the operations of clients on a store, and their answers. It decides whether one
// order of all operations on each key explains every answer. An operation whose outcome is unknown,
// for instance because its client died, may have taken effect at any later time, or never. One
// operation is before another if its answer was recorded before the other operation was called.
// History numbers calls and answers, because in virtual time many of them have the same instant.
type History struct {
	// Guard, if set, is held while the history changes. It is needed if the clients are threads. In
	// virtual time only one client runs at a time, so no Guard is needed.
	Guard Guard

	ops    map[uint64][]operation // by key
	losses []loss
	n      int  // number of operations
	ended  bool // true after End
	// clock numbers the calls, answers and losses, so that those at one instant have an order.
	clock int64
}

// moment is a position in the order of a history, with its time.
type moment struct {
	order int64
	at    clock.Time
}

// loss is the moment at which memory servers lost their memory.
type loss struct {
	moment
	of Places // the servers
}

// Places is a set of memory servers, one bit for each: the servers that have data of a key, or
// those that have lost their memory.
type Places uint64

// Anywhere is the set of all servers. It is used when the servers of a key are not known.
const Anywhere = ^Places(0)

// tick returns the next moment of the history. The caller holds the guard.
func (h *History) tick(now clock.Time) moment {
	h.clock++
	return moment{h.clock, now}
}

// Guard is a lock for clients that are threads, such as a *sync.Mutex.
type Guard interface {
	Lock()
	Unlock()
}

func (h *History) guarded(f func()) {
	if h.Guard != nil {
		h.Guard.Lock()
		defer h.Guard.Unlock()
	}
	f()
}

func NewHistory() *History { return &History{ops: make(map[uint64][]operation)} }

func (h *History) Len() int { return h.n }

type opKind uint8

const (
	opGet opKind = iota
	opPut
	opInsert
	opDelete
	opUpsert
	// opLoss is a loss of memory: every key with data in that memory may be lost from then on.
	opLoss
)

var opNames = [...]string{"GET", "PUT", "INSERT", "DELETE", "UPSERT", "loss"}

// writes reports whether an operation gives the key a value.
func (k opKind) writes() bool { return k == opPut || k == opInsert || k == opUpsert }

type input struct {
	kind  opKind
	value uint64 // the number of the value that is written; see MakeValue
	// losses, in an opLoss, is the loss itself, or everyLoss if all servers lost their memory. In
	// another operation, it is the set of losses that happened while the operation was in progress.
	// See Loss.
	losses lossSet
	at     clock.Time
}

// lossSet is a set of losses. Bit i stands for loss i, in the order of time (see bit).
type lossSet uint64

const everyLoss = ^lossSet(0)

// bit returns the set that has only loss i. All losses from number 63 on share the last bit.
func bit(i int) lossSet { return 1 << min(i, 63) }

type outcome uint8

const (
	done outcome = iota
	notFound
	exists
	lost
	unknown
	// noEffect means that the operation changed nothing and never will (ErrNoEffect).
	noEffect
)

var outcomeNames = [...]string{"ok", "not found", "exists", "lost", "unknown", "no effect"}

type output struct {
	outcome outcome
	value   uint64 // the number of the value that a GET has found
	// where is the set of servers that have the data of a successful write. exposed is the set of
	// losses of memory of these servers since the write was called.
	where   Places
	exposed lossSet
	at      clock.Time
}

// never is the end of an operation whose answer has not arrived.
const never = math.MaxInt64

// invoke records that an operation may take effect from now on. It returns the operation's index.
func (h *History) invoke(key uint64, client int, in input, call clock.Time) (index int) {
	h.guarded(func() {
		if h.ended {
			return
		}
		h.n++
		in.at = call
		h.ops[key] = append(h.ops[key], operation{
			client: client, in: in, out: output{outcome: unknown}, call: h.tick(call).order, end: never,
		})
		index = len(h.ops[key]) - 1
	})
	return index
}

func (h *History) answer(key uint64, index int, out output, back clock.Time) {
	h.guarded(func() {
		if h.ended {
			return
		}
		if op := &h.ops[key][index]; out.outcome != unknown {
			out.at = back
			op.out, op.end = out, h.tick(back).order
		}
	})
}

// Loss records that servers have lost their memory. From now on, operations on keys with data on
// these servers may answer ErrLost, until the keys are inserted again. An older value is never a
// right answer, and a key without data on these servers is never lost.
//
// The data of a key are on the servers of all writes since the key was inserted (see
// Recorded.Where). The values of a key may form a chain, and a loss of one of them breaks the chain
// even if the newest value still exists. If the outcome of a write is unknown, the key may have
// data on any server.
//
// One loss may lose a key several times: once for the loss, and once more for each PUT, UPSERT or
// DELETE on these servers that was in progress at the loss. Such an operation may have written its
// node into that memory before the loss, and may append it later to a key that other clients have
// found lost and have inserted again. Then the operation succeeds, and its value is gone.
// Operations that begin after the loss write nothing into the lost memory.
func (h *History) Loss(now clock.Time, of Places) {
	h.guarded(func() {
		if !h.ended {
			h.losses = append(h.losses, loss{h.tick(now), of})
		}
	})
}

// End ends the history: operations that are in progress keep an unknown outcome, and nothing is
// recorded from now on. It is called when the right answers are not known any more, for example
// after a crash of all servers that had the newest values.
func (h *History) End() { h.guarded(func() { h.ended = true }) }

// LossExplains reports whether an order explains every answer if the servers may have lost their
// memory at any time. It is called for a history for which Check returns an error: if LossExplains
// returns true, the cause may be a crash that no call of Loss recorded. most is the limit of the
// search, as in Check.
func (h *History) LossExplains(most int) bool {
	lossy := History{ops: h.ops, losses: append([]loss{{of: Anywhere}}, h.losses...)}
	return lossy.Check(most) == nil
}

// of returns the operations on a key together with the losses.
func (h *History) of(key uint64) []operation {
	list := slices.Clone(h.ops[key])
	spread := slices.ContainsFunc(list, func(op operation) bool { return op.out.outcome == unknown && op.in.kind != opGet })
	for i := range list {
		op := &list[i]
		for n, m := range h.losses {
			if op.call > m.order {
				continue
			}
			if m.order < op.end {
				op.in.losses |= bit(n)
			}
			if spread || op.out.where&m.of != 0 {
				op.out.exposed |= bit(n)
			}
		}
	}
	for i, m := range h.losses {
		in := input{kind: opLoss, losses: bit(i), at: m.at}
		if m.of == Anywhere {
			in.losses = everyLoss
		}
		list = append(list, operation{client: -1 - i, in: in, out: output{outcome: unknown}, call: m.order, end: never})
	}
	return list
}

// needed removes operations that no order needs to explain: operations without effect, GETs without
// an answer, and PUTs without an answer whose value no client has read. Such a PUT affects no
// answer. So if an order explains the history with this PUT, the same order without it explains the
// history as well. Each such PUT would double the search. A PUT that was in progress at a loss
// stays, because it may have lost the key.
func needed(list []operation) []operation {
	seen := map[uint64]bool{}
	for _, op := range list {
		if op.in.kind == opGet && op.out.outcome == done {
			seen[op.out.value] = true
		}
	}
	return slices.DeleteFunc(list, func(op operation) bool {
		in, out := op.in, op.out
		return out.outcome == noEffect || out.outcome == unknown && (in.kind == opGet || in.kind == opPut && in.losses == 0 && !seen[in.value])
	})
}

// Values of a state that stand for no value: the key is absent, or its value was lost.
const (
	absent    = uint64(1 << 63)
	lostValue = uint64(1<<63 | 1)
)

// state is the state of a key. exposed has the losses that may have destroyed the key: those of
// memory that may have data of the key's insert, or of a later write of the key, since that write
// was called.
type state struct {
	value   uint64
	exposed lossSet
}

// gone is the state of a key whose value was lost with the memory of its server.
var gone = state{value: lostValue}

// step returns the n states in which a key in state s can be after an operation with this input and
// output. n is 0 if the operation cannot have this output in state s. For an operation without an
// answer, they are the states after it has taken effect; an order may also leave the operation out.
func step(s state, in input, out output) (next [2]state, n int) {
	if in.kind == opLoss {
		next[0], next[1] = s, gone
		if s.exposed&in.losses == 0 && in.losses != everyLoss {
			return next, 1
		}
		return next, 2
	}
	value, legal := apply(s.value, in)
	after := s
	if legal == done && in.kind != opGet {
		after = state{value, out.exposed}
		if in.kind != opInsert && s.value != absent {
			after.exposed |= s.exposed
		}
	}
	if out.outcome != unknown && (legal != out.outcome || in.kind == opGet && out.outcome == done && out.value != s.value) {
		return next, 0
	}
	next[0], next[1], n = after, gone, 1
	if in.losses&out.exposed != 0 && legal == done && in.kind != opGet && in.kind != opInsert {
		n = 2
	}
	return next, n
}

// apply returns the value of a key after an operation that no loss of memory hits, and the outcome.
// The value before may be lostValue, from an earlier loss.
func apply(value uint64, in input) (after uint64, out outcome) {
	switch {
	case in.kind == opInsert && (value == absent || value == lostValue):
		return in.value, done
	case in.kind == opInsert:
		return value, exists
	case value == lostValue:
		return value, lost
	case in.kind == opUpsert:
		return in.value, done
	case value == absent:
		return value, notFound
	case in.kind == opPut:
		return in.value, done
	case in.kind == opDelete:
		return absent, done
	}
	return value, done
}

// MostStates is the usual limit of the search for an order of the operations on a key, in states.
// Histories of a few hundred operations need some thousand states. A difficult history, in which
// most operations have no answer, may need more than MostStates. The number of operations and
// mostCompared limit the cost of each state.
const MostStates = 1 << 21

// ErrUndecided means that the search reached its limit before it found an order or excluded all
// orders. It says nothing about the store.
var ErrUndecided = errors.New("the search for an order was not decided")

// Check returns an error for the first key whose history no order explains. For each key the search
// visits at most as many states as most says.
func (h *History) Check(most int) error {
	for _, k := range slices.Sorted(maps.Keys(h.ops)) {
		s := newSearch(needed(h.of(k)), most)
		switch {
		case s.found(state{value: absent}):
		case s.undecided():
			return fmt.Errorf("history of key %d with %d operations: %w in %d states", k, len(h.ops[k]), ErrUndecided, most)
		default:
			return fmt.Errorf("history of key %d is not linearizable:\n%s", k, h.text(k))
		}
	}
	return nil
}

// text lists the last operations on a key, in the order of their ends.
func (h *History) text(key uint64) string {
	const most = 60
	list := h.of(key)
	slices.SortStableFunc(list, func(a, b operation) int { return cmp.Compare(a.end, b.end) })
	s := ""
	for _, op := range list[max(0, len(list)-most):] {
		in, out := op.in, op.out
		end := "…"
		if op.end != never {
			end = time.Duration(out.at).String()
		}
		s += fmt.Sprintf("  client %2d  %-6s %8x  %-9s %8x  %v to %s\n", op.client, opNames[in.kind], in.value,
			outcomeNames[out.outcome], out.value, time.Duration(in.at), end)
	}
	return s
}

// Recorded is a Store that passes operations to another Store and records them in a History. The
// caller writes values that the method Value makes. Each begins with a number that no other value
// of the history has, so a GET shows which write it has seen.
type Recorded struct {
	Store
	// Where, if set, is called after a successful write. It returns the memory servers that have
	// data of this write: if one of them loses its memory, the key may be lost.
	Where func() Places

	history *History
	client  int
	now     func() clock.Time
	seq     uint64 // number of values that Value has made
	check   error  // see Err
}

// Record returns a Recorded that passes the operations of a client to its store s and records them
// in h. now is the clock of the client's Runtime.
func Record(s Store, h *History, client int, now func() clock.Time) *Recorded {
	return &Recorded{Store: s, history: h, client: client, now: now}
}

// ErrValue means that a store has returned a value that no client wrote.
var ErrValue = errors.New("value that no client wrote")

// Err returns the first error ErrValue or ErrScan that the store's answers have shown, or nil.
func (r *Recorded) Err() error { return r.check }

// Value returns the next value to write. It has n bytes, but at least MinValue: a number, the key,
// and bytes that are computed from the number.
func (r *Recorded) Value(key uint64, n int) []byte {
	r.seq++
	return MakeValue(key, uint64(r.client+1)<<32|r.seq, n)
}

// MinValue is the length in bytes of the shortest value that can be checked.
const MinValue = 16

// MakeValue returns a value of n bytes, at least MinValue, that identifies its write by a number.
func MakeValue(key, number uint64, n int) []byte {
	b := make([]byte, max(n, MinValue))
	binary.LittleEndian.PutUint64(b, number)
	binary.LittleEndian.PutUint64(b[8:], key)
	fill(b[MinValue:], number)
	return b
}

func fill(b []byte, number uint64) {
	for i := range b {
		b[i] = byte(number>>(i%5) + uint64(i)*7)
	}
}

// CheckValue returns the number of the write of a value, or ErrValue.
func CheckValue(key uint64, b []byte) (uint64, error) {
	if len(b) < MinValue {
		return 0, fmt.Errorf("%w: the value of key %d has %d bytes, and clients of workloads and histories write at least %d", ErrValue, key, len(b), MinValue)
	}
	number := binary.LittleEndian.Uint64(b)
	if own := binary.LittleEndian.Uint64(b[8:]); own != key {
		return number, fmt.Errorf("%w: key %d has a value of key %d", ErrValue, key, own)
	}
	for i, c := range b[MinValue:] {
		if c != byte(number>>(i%5)+uint64(i)*7) {
			return number, fmt.Errorf("%w: byte %d of value %x of key %d", ErrValue, i+MinValue, number, key)
		}
	}
	return number, nil
}

func (r *Recorded) run(key uint64, in input, f func() (got uint64, err error)) error {
	index := r.history.invoke(key, r.client, in, r.now())
	got, err := f()
	out := output{value: got, where: Anywhere} // of a write, r.Where may name fewer servers, below
	switch {
	case err == nil && in.kind != opGet && r.Where != nil:
		out.where = r.Where()
	case err == nil:
	case errors.Is(err, ErrNoEffect):
		out.outcome = noEffect
	case errors.Is(err, ErrTimeout):
		out.outcome = unknown // even if another error is joined with ErrTimeout
	case errors.Is(err, ErrLost):
		out.outcome = lost
	case errors.Is(err, ErrNotFound):
		out.outcome = notFound
	case errors.Is(err, ErrExists):
		out.outcome = exists
	default:
		out.outcome = unknown
	}
	r.history.answer(key, index, out, r.now())
	return err
}

func (r *Recorded) Get(key uint64, dst []byte, deadline clock.Time) (v []byte, err error) {
	err = r.run(key, input{kind: opGet}, func() (number uint64, err error) {
		if v, err = r.Store.Get(key, dst, deadline); err != nil {
			return 0, err
		}
		number, bad := CheckValue(key, v)
		if bad != nil && r.check == nil {
			r.check = bad
		}
		return number, nil
	})
	return v, err
}

func (r *Recorded) Put(key uint64, value []byte, deadline clock.Time) error {
	return r.run(key, input{kind: opPut, value: binary.LittleEndian.Uint64(value)}, func() (uint64, error) {
		return 0, r.Store.Put(key, value, deadline)
	})
}

func (r *Recorded) Insert(key uint64, value []byte, deadline clock.Time) error {
	return r.run(key, input{kind: opInsert, value: binary.LittleEndian.Uint64(value)}, func() (uint64, error) {
		return 0, r.Store.Insert(key, value, deadline)
	})
}

// Upsert executes and records an UPSERT. The store must be an Upserter. If the key is lost, the
// UPSERT may return ErrLost like a PUT, but must not succeed.
func (r *Recorded) Upsert(key uint64, value []byte, deadline clock.Time) error {
	u, ok := r.Store.(Upserter)
	if !ok {
		return errors.New("the store has no UPSERT")
	}
	return r.run(key, input{kind: opUpsert, value: binary.LittleEndian.Uint64(value)}, func() (uint64, error) {
		return 0, u.Upsert(key, value, deadline)
	})
}

func (r *Recorded) Delete(key uint64, deadline clock.Time) error {
	return r.run(key, input{kind: opDelete}, func() (uint64, error) { return 0, r.Store.Delete(key, deadline) })
}
