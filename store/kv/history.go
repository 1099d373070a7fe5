package kv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// History records the operations of clients on a store, and their answers. It decides whether one
// order of all operations on each key explains every answer. An operation whose outcome is unknown
// may have happened at any later time, or never; the outcome of an operation whose client died is
// unknown. One operation is before another if its answer was noted before the other was called:
// calls and answers are numbered, because in virtual time many happen at one instant.
type History struct {
	// Guard, if set, is held while the history changes: for clients that are threads. In virtual
	// time none is needed.
	Guard Guard

	ops    map[uint64][]porcupine.Operation
	losses []loss
	n      int
	// clock numbers the calls, answers and losses, so that those of one instant have an order.
	clock int64
}

// moment is a place in the order of a history, and the instant at which it was reached.
type moment struct {
	order int64
	at    clock.Time
}

// loss is a loss of memory.
type loss struct {
	moment
	of Places
}

// Places is a set of memory servers, one bit each: those that have something of a key, or those that
// have lost their memory.
type Places uint64

// Anywhere are all servers: a place that is not known.
const Anywhere = ^Places(0)

// tick is the next moment. The history's guard must be held.
func (h *History) tick(now clock.Time) moment {
	h.clock++
	return moment{h.clock, now}
}

// Guard is a lock of the shell in which the clients run.
type Guard interface {
	Lock()
	Unlock()
}

// guarded runs f alone.
func (h *History) guarded(f func()) {
	if h.Guard != nil {
		h.Guard.Lock()
		defer h.Guard.Unlock()
	}
	f()
}

// NewHistory makes an empty history.
func NewHistory() *History { return &History{ops: make(map[uint64][]porcupine.Operation)} }

// Len is the number of operations.
func (h *History) Len() int { return h.n }

type opKind uint8

const (
	opGet opKind = iota
	opPut
	opInsert
	opDelete
	// opLoss is the loss of memory: every key that has something there may be lost from then on.
	opLoss
)

var opNames = [...]string{"GET", "PUT", "INSERT", "DELETE", "loss"}

type input struct {
	kind  opKind
	value uint64
	// losses has, of a loss, itself; of another operation, those while it was in progress. See Loss.
	losses lossSet
	at     clock.Time
}

// lossSet is a set of losses, one bit each in their order.
type lossSet uint64

const everyLoss = ^lossSet(0)

// bit is the set of loss i; the losses beyond the last bit are not told apart.
func bit(i int) lossSet { return 1 << min(i, 63) }

type outcome uint8

const (
	done outcome = iota
	notFound
	exists
	lost
	unknown
	// noEffect is certain, as ErrNoEffect is.
	noEffect
)

var outcomeNames = [...]string{"ok", "not found", "exists", "lost", "unknown", "no effect"}

type output struct {
	outcome outcome
	value   uint64
	// where, of a write that succeeded, is where its part of the key is; exposed are the losses that
	// came after its call and were there.
	where   Places
	exposed lossSet
	at      clock.Time
}

// never is the moment of an answer that did not come.
const never = math.MaxInt64

// invoke notes that an operation may take effect from now on.
func (h *History) invoke(key uint64, client int, in input, call clock.Time) (index int) {
	h.guarded(func() {
		h.n++
		in.at = call
		h.ops[key] = append(h.ops[key], porcupine.Operation{
			ClientId: client, Input: in, Output: output{outcome: unknown}, Call: h.tick(call).order, Return: never,
		})
		index = len(h.ops[key]) - 1
	})
	return index
}

// answer notes the outcome of an operation.
func (h *History) answer(key uint64, index int, out output, back clock.Time) {
	h.guarded(func() {
		if op := &h.ops[key][index]; out.outcome != unknown {
			out.at = back
			op.Output, op.Return = out, h.tick(back).order
		}
	})
}

// Loss notes that servers have lost their memory: keys that have something there may answer ErrLost
// from now on until they are inserted again. An older value is never a right answer, and a key that
// has nothing there is never lost.
//
// What a key has there is known as far as Recorded.Where tells: the servers of all writes since the
// key was inserted, because a chain of values is cut where one of them is gone, however new the last
// one is. A key with a write whose outcome is unknown may be anywhere.
//
// A key is lost once for a loss, and once more for each PUT or DELETE there that was in progress when
// the memory was lost. Such an operation may have written its node there before, and append it later:
// to a key that others have found lost and inserted again. The operation succeeds, and its value is
// gone. Operations that begin after the loss write nothing there.
func (h *History) Loss(now clock.Time, of Places) {
	h.guarded(func() { h.losses = append(h.losses, loss{h.tick(now), of}) })
}

// of returns the history of a key, with the losses.
func (h *History) of(key uint64) []porcupine.Operation {
	list, spread := slices.Clone(h.ops[key]), false
	for _, op := range list {
		spread = spread || op.Output.(output).outcome == unknown && op.Input.(input).kind != opGet
	}
	for i, op := range list {
		in, out := op.Input.(input), op.Output.(output)
		for n, m := range h.losses {
			if op.Call > m.order {
				continue
			}
			if m.order < op.Return {
				in.losses |= bit(n)
			}
			if spread || out.where&m.of != 0 {
				out.exposed |= bit(n)
			}
		}
		list[i].Input, list[i].Output = in, out
	}
	for i, m := range h.losses {
		in := input{kind: opLoss, losses: bit(i), at: m.at}
		if m.of == Anywhere {
			in.losses = everyLoss
		}
		list = append(list, porcupine.Operation{ClientId: -1 - i, Input: in, Output: output{outcome: unknown}, Call: m.order, Return: never})
	}
	return list
}

// needed leaves out the operations that no order needs: operations without effect, GETs without an
// answer, and PUTs without an answer whose value no client has read. Such a PUT affects no answer,
// so an order that explains the history with it explains the history without it, too; and each of
// them doubles the search. A PUT that was in progress at a loss stays, because it may have lost the
// key.
func needed(list []porcupine.Operation) []porcupine.Operation {
	seen := map[uint64]bool{}
	for _, op := range list {
		if out := op.Output.(output); op.Input.(input).kind == opGet && out.outcome == done {
			seen[out.value] = true
		}
	}
	return slices.DeleteFunc(list, func(op porcupine.Operation) bool {
		in, out := op.Input.(input), op.Output.(output)
		return out.outcome == noEffect || out.outcome == unknown && (in.kind == opGet || in.kind == opPut && in.losses == 0 && !seen[in.value])
	})
}

// values of a state that are none.
const (
	absent    = uint64(1 << 63)
	lostValue = uint64(1<<63 | 1)
)

// state of a key: its value, and the losses to which the writes since it was inserted are exposed.
type state struct {
	value   uint64
	exposed lossSet
}

// gone is the state of a lost key.
var gone = state{value: lostValue}

// step lists the states in which the key can be after an operation.
func step(s state, in input, out output) []state {
	if in.kind == opLoss {
		if s.exposed&in.losses == 0 && in.losses != everyLoss {
			return []state{s}
		}
		return []state{s, gone}
	}
	value, legal := apply(s.value, in)
	after := s
	if legal == done && in.kind != opGet {
		after = state{value, out.exposed}
		if in.kind != opInsert {
			after.exposed |= s.exposed
		}
	}
	next := []state{after}
	switch {
	case out.outcome == unknown:
		next = append(next, s)
	case legal != out.outcome || in.kind == opGet && out.outcome == done && out.value != s.value:
		return nil
	}
	if in.losses&out.exposed != 0 && legal == done && (in.kind == opPut || in.kind == opDelete) {
		next = append(next, gone)
	}
	return next
}

// apply returns the value and the outcome of an operation on a store without faults.
func apply(value uint64, in input) (after uint64, out outcome) {
	switch {
	case in.kind == opInsert && (value == absent || value == lostValue):
		return in.value, done
	case in.kind == opInsert:
		return value, exists
	case value == lostValue:
		return value, lost
	case value == absent:
		return value, notFound
	case in.kind == opPut:
		return in.value, done
	case in.kind == opDelete:
		return absent, done
	}
	return value, done
}

var model = porcupine.NondeterministicModel{
	Init: func() []any { return []any{state{value: absent}} },
	Step: func(s, in, out any) []any {
		next := step(s.(state), in.(input), out.(output))
		list := make([]any, len(next))
		for i, s := range next {
			list[i] = s
		}
		return list
	},
	Equal: func(a, b any) bool { return a.(state) == b.(state) },
}

// Check reports the first key whose history no order explains. patience bounds the search for each
// key; a search that does not end is an error, too: it shows nothing.
func (h *History) Check(patience time.Duration) error {
	keys := make([]uint64, 0, len(h.ops))
	for k := range h.ops {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	m := model.ToModel()
	for _, k := range keys {
		switch porcupine.CheckOperationsTimeout(m, needed(h.of(k)), patience) {
		case porcupine.Ok:
		case porcupine.Illegal:
			return fmt.Errorf("history of key %d is not linearizable:\n%s", k, h.text(k))
		case porcupine.Unknown:
			return fmt.Errorf("history of key %d with %d operations was not decided in %v", k, len(h.ops[k]), patience)
		}
	}
	return nil
}

// text prints the last operations on a key, in the order of their ends.
func (h *History) text(key uint64) string {
	const most = 60
	list := h.of(key)
	slices.SortStableFunc(list, func(a, b porcupine.Operation) int { return int(min(1, max(-1, a.Return-b.Return))) })
	s := ""
	for _, op := range list[max(0, len(list)-most):] {
		in, out := op.Input.(input), op.Output.(output)
		end := "…"
		if op.Return != never {
			end = time.Duration(out.at).String()
		}
		s += fmt.Sprintf("  client %2d  %-6s %8x  %-9s %8x  %v to %s\n", op.ClientId, opNames[in.kind], in.value,
			outcomeNames[out.outcome], out.value, time.Duration(in.at), end)
	}
	return s
}

// Recorded is a Store that records the operations on another one in a History. Its values begin
// with a number that no other value of the history has, so that a GET tells which write it has
// seen.
type Recorded struct {
	Store
	// Where, if set, says after a write that succeeded which memory servers have what the key needs of
	// it.
	Where func() Places

	history *History
	client  int
	now     func() clock.Time
	seq     uint64
	check   error
}

// Record wraps a client's store. now is its Runtime's.
func Record(s Store, h *History, client int, now func() clock.Time) *Recorded {
	return &Recorded{Store: s, history: h, client: client, now: now}
}

// ErrValue means that a store returned a value that no client wrote.
var ErrValue = errors.New("value that no client wrote")

// Err returns the error of the first value that no client wrote.
func (r *Recorded) Err() error { return r.check }

// Value makes the next value of n bytes, at least MinValue: number, key, and bytes that follow from
// both.
func (r *Recorded) Value(key uint64, n int) []byte {
	r.seq++
	return MakeValue(key, uint64(r.client+1)<<32|r.seq, n)
}

// MinValue is the shortest value that can be checked.
const MinValue = 16

// MakeValue returns a value that identifies its write by a number.
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

// CheckValue returns the number of a value, or ErrValue.
func CheckValue(key uint64, b []byte) (uint64, error) {
	if len(b) < MinValue {
		return 0, fmt.Errorf("%w: %d bytes", ErrValue, len(b))
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

// run records one operation.
func (r *Recorded) run(key uint64, in input, f func() (got uint64, err error)) error {
	index := r.history.invoke(key, r.client, in, r.now())
	got, err := f()
	out := output{value: got, where: Anywhere} // known of a write that succeeded
	switch {
	case err == nil && in.kind != opGet && r.Where != nil:
		out.where = r.Where()
	case err == nil:
	case errors.Is(err, ErrNoEffect):
		out.outcome = noEffect
	case errors.Is(err, ErrTimeout):
		out.outcome = unknown // even if it says more
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

// Get records a GET.
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

// Put records a PUT.
func (r *Recorded) Put(key uint64, value []byte, deadline clock.Time) error {
	return r.run(key, input{kind: opPut, value: binary.LittleEndian.Uint64(value)}, func() (uint64, error) {
		return 0, r.Store.Put(key, value, deadline)
	})
}

// Insert records an INSERT.
func (r *Recorded) Insert(key uint64, value []byte, deadline clock.Time) error {
	return r.run(key, input{kind: opInsert, value: binary.LittleEndian.Uint64(value)}, func() (uint64, error) {
		return 0, r.Store.Insert(key, value, deadline)
	})
}

// Delete records a DELETE.
func (r *Recorded) Delete(key uint64, deadline clock.Time) error {
	return r.run(key, input{kind: opDelete}, func() (uint64, error) { return 0, r.Store.Delete(key, deadline) })
}
