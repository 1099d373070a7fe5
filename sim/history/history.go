// Package history records the operations of applications on 64-bit words in remote memory and their
// answers, and decides whether one order of all operations explains them: whether the history is
// linearizable.
//
// It knows nothing of networks. A caller calls Invoke before an operation can take effect, and
// Return when its answer is known; the order of these calls is the time of the history. An
// operation without an answer may take effect at any later time, or never. If an observer of the
// memory itself calls Changed, the package knows which of the operations without an answer took
// effect, and when.
package history

import (
	"fmt"
	"math"
	"slices"
)

type Kind uint8

// Kinds of operations. A Write changes the bits of its mask; its answer has no value.
const (
	Read Kind = iota
	Write
	CmpSwap
	FetchAdd
)

var kindNames = [...]string{"READ", "WRITE", "CMP_SWAP", "FETCH_ADD"}

func (k Kind) String() string { return kindNames[k] }

// Op is an operation as it was requested. Words are numbers in host byte order.
type Op struct {
	Kind Kind
	// Value is the value that a Write writes, a CmpSwap swaps in, or a FetchAdd adds.
	Value uint64
	// Compare is the compare value of a CmpSwap.
	Compare uint64
	// Mask has the bits that a Write changes; 0 means all.
	Mask uint64
}

// Apply returns the value of a word after the operation. The argument word is the value before it.
func (o Op) Apply(word uint64) uint64 {
	switch o.Kind {
	case Write:
		if o.Mask != 0 {
			return word&^o.Mask | o.Value&o.Mask
		}
		return o.Value
	case CmpSwap:
		if word == o.Compare {
			return o.Value
		}
	case FetchAdd:
		return word + o.Value
	case Read:
	}
	return word
}

func (o Op) String() string {
	switch o.Kind {
	case CmpSwap:
		return fmt.Sprintf("CMP_SWAP(%#x→%#x)", o.Compare, o.Value)
	case FetchAdd:
		return fmt.Sprintf("FETCH_ADD(%#x)", o.Value)
	case Write:
		if o.Mask != 0 {
			return fmt.Sprintf("WRITE(%#x of %#x)", o.Value, o.Mask)
		}
		return fmt.Sprintf("WRITE(%#x)", o.Value)
	case Read:
	}
	return "READ"
}

// never is the time of an answer that has not come.
const never = math.MaxInt64

// event is an operation in the history of a word.
type event struct {
	op        Op
	client    int
	call, ret int64
	answer    uint64 // of a Read, CmpSwap or FetchAdd: the value of the word before the operation
	answered  bool
	// If the memory is watched (Log.Watch), seen is the time at which this operation is known to
	// have changed the word; 0 means that no such time is known. maybe is true if the operation may
	// have made a change.
	seen  int64
	maybe bool
}

type ID struct{ word, index int }

// Log is the history of several words, which are numbered from 0. The zero value is ready to use.
// Only one goroutine may use it.
type Log struct {
	words []word
	clock int64 // the time of the history: number of calls of Invoke, Return and Changed so far
	// Ops counts the operations. Pending counts those that have no answer yet.
	Ops, Pending int
}

// word is the history of a word of memory, whose value was first at the beginning.
type word struct {
	name    string
	first   uint64
	events  []event
	open    []int // indices of events without an answer
	watched bool
	// If the memory is watched (Log.Watch), value is the word's present value, and changes has the
	// changes that were reported.
	value   uint64
	changes []change
}

// change is a change of the word in memory. by has the indices of the events without an answer that
// may have caused this change.
type change struct {
	at     int64
	before uint64
	by     []int
}

// Add begins the history of a further word, whose value is first, and returns the word's number.
func (l *Log) Add(name string, first uint64) int {
	l.words = append(l.words, word{name: name, first: first, value: first})
	return len(l.words) - 1
}

// Invoke records that a client is about to request operation op on word w. It returns the
// operation's ID.
func (l *Log) Invoke(w, client int, op Op) ID {
	l.clock++
	l.Ops++
	l.Pending++
	x := &l.words[w]
	x.events = append(x.events, event{op: op, client: client, call: l.clock, ret: never})
	x.open = append(x.open, len(x.events)-1)
	return ID{w, len(x.events) - 1}
}

// Return records the answer to an operation: the value of the word before it. For a Write, answer
// is ignored.
func (l *Log) Return(id ID, answer uint64) {
	x := &l.words[id.word]
	e := &x.events[id.index]
	if e.answered {
		panic(fmt.Sprintf("history: two answers to %v of client %d", e.op, e.client))
	}
	l.clock++
	l.Pending--
	e.answered, e.answer, e.ret = true, answer, l.clock
	x.open = slices.DeleteFunc(x.open, func(i int) bool { return i == id.index })
}

// Watch says that Changed will be called after every operation that changes word w.
func (l *Log) Watch(w int) { l.words[w].watched = true }

// Changed records that word w has this value in memory now. It returns a *ChangedError if no
// operation that was invoked and is not yet answered makes that change.
func (l *Log) Changed(w int, value uint64) error {
	x := &l.words[w]
	l.clock++
	before := x.value
	x.value = value
	var by []int
	for _, i := range x.open {
		if e := &x.events[i]; e.seen == 0 && e.op.Kind != Read && e.op.Apply(before) == value {
			by = append(by, i)
			e.maybe = true
		}
	}
	switch len(by) {
	case 0:
		return &ChangedError{x.name, before, value}
	case 1:
		x.events[by[0]].seen = l.clock
	}
	x.changes = append(x.changes, change{l.clock, before, by})
	return nil
}

// ChangedError is a change of memory that no operation in flight explains. Either an operation was
// executed twice, or an old packet has arrived, or a value was written that no client has
// requested.
type ChangedError struct {
	Word          string
	Before, After uint64
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("word %s: the memory became %#x, was %#x, and no operation in flight does that", e.Word, e.After, e.Before)
}
