package history

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// MostSteps bounds the search for an order of the operations on a word. A step tries one operation
// in one state; a few hundred operations take some ten thousand steps.
const MostSteps = 1 << 25

// UndecidedError is the error of a search that reached the bound of its steps without a result.
type UndecidedError struct {
	Word       string
	Ops, Steps int
}

func (e *UndecidedError) Error() string {
	return fmt.Sprintf("word %s: no verdict on %d operations in %d steps", e.Word, e.Ops, e.Steps)
}

// BrokenError is the error for a word on which the answers fit no order of the operations.
type BrokenError struct {
	Word string
	Ops  int
	// Explained is the length of the longest sequence of operations that has an order. Around lists
	// the operations that would have to follow next and cannot.
	Explained int
	Around    []string
}

func (e *BrokenError) Error() string {
	return fmt.Sprintf("word %s: the history is not linearizable: %d of %d operations have an order, then none of these can follow:\n    %s",
		e.Word, e.Explained, e.Ops, strings.Join(e.Around, "\n    "))
}

// state is the state of a word: its value, and whether the end has come.
type state struct {
	value uint64
	ended bool
}

// end is an input behind all operations that were answered. An operation that was never answered
// takes place before it if it changes the word there, and otherwise after it, where it does nothing.
// This loses no order of the operations: an operation without an answer and without an effect can
// be moved to the end of the order. Without the end, a search would try each of them at each place.
type end struct{}

// model describes a word to the checker porcupine: the input is an Op or end, the output an answer.
func model(first uint64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{value: first} },
		Step: func(s, input, output any) (bool, any) {
			st := s.(state)
			op, ok := input.(Op)
			if !ok {
				return true, state{st.value, true}
			}
			out := output.(answer)
			switch {
			case out.known && op.Kind != Write && out.before != st.value:
				return false, s
			case st.ended: // only operations that were never answered are left
				return out.never, s
			}
			next := op.Apply(st.value)
			if next == st.value {
				return !out.never, s
			}
			return true, state{value: next}
		},
		Equal: func(a, b any) bool { return a.(state) == b.(state) },
		Hash: func(s any) uint64 {
			st := s.(state)
			if st.ended {
				return ^st.value
			}
			return st.value
		},
	}
}

// withEnd appends the end to operations.
func withEnd(ops []porcupine.Operation) []porcupine.Operation {
	var last int64
	for _, o := range ops {
		last = max(last, o.Call)
		if o.Return < never {
			last = max(last, o.Return)
		}
	}
	return append(slices.Clone(ops), porcupine.Operation{ClientId: -2, Input: end{}, Output: answer{}, Call: last + 1, Return: last + 2})
}

// decide is porcupine.CheckOperations with a bound on the steps. After `most` steps the model
// rejects every operation, so that the search ends, and decided is false.
func decide(m porcupine.Model, ops []porcupine.Operation, most int) (explained, decided bool) {
	steps, step := 0, m.Step
	m.Step = func(state, input, output any) (bool, any) {
		if steps++; steps > most {
			return false, state
		}
		return step(state, input, output)
	}
	explained = porcupine.CheckOperations(m, ops)
	return explained, explained || steps <= most
}

// answer is what a client knows of an operation: the value before it, if known. never: the operation
// has no answer, and may take place at any time.
type answer struct {
	known, never bool
	before       uint64
}

// Check checks every word. final returns the value that a word has at the end, and false if that is
// not known. most bounds the steps of the search for each word. The error is a *BrokenError or an
// *UndecidedError of the first word that has one.
func (l *Log) Check(final func(w int) (uint64, bool), most int) error {
	for w := range l.words {
		if err := l.check(w, final, most); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) check(w int, final func(w int) (uint64, bool), most int) error {
	x := &l.words[w]
	events := slices.Clone(x.events)
	if v, ok := final(w); ok {
		events = append(events, event{op: Op{Kind: Read}, client: -1, call: l.clock + 1, ret: l.clock + 2, answered: true, answer: v})
	}
	m := model(x.first)
	// In most histories the order in which the memory changed is known, which makes the search short.
	if x.watched {
		if explained, _ := decide(m, x.asSeen(events), most/4); explained {
			return nil
		}
	}
	ops := operations(events, x.watched)
	switch explained, decided := decide(m, withEnd(ops), most); {
	case explained:
		return nil
	case !decided:
		return &UndecidedError{x.name, len(ops), most}
	}
	return x.explain(m, ops)
}

// asSeen assigns every change of the memory to one of the operations that may have made it, which
// then takes place at the instant of the change. It omits other operations without an answer. If
// the remaining operations have a linearizable order, the whole history has one, whichever
// operations were chosen.
func (x *word) asSeen(events []event) []porcupine.Operation {
	events = slices.Clone(events)
	for _, c := range x.changes {
		best := -1
		for _, i := range c.by {
			e := &events[i]
			switch {
			case e.call == e.ret, e.answered && e.op.Kind != Write && e.answer != c.before: // such an operation has made another change
			case best < 0, e.ret < events[best].ret: // of several, the operation that was answered first is chosen: it cannot have made a later change
				best = i
			}
		}
		if best >= 0 {
			events[best].call, events[best].ret = c.at, c.at
		}
	}
	var out []porcupine.Operation
	for i := range events {
		if e := &events[i]; e.answered || e.call == e.ret {
			out = append(out, e.operation())
		}
	}
	return out
}

// operations omits the operations that are not needed to explain the answer of another one: those
// without an answer that changed nothing in watched memory, or whose value no other operation
// mentions. If values can arise that no operation mentions, it keeps the latter.
func operations(events []event, watched bool) []porcupine.Operation {
	mentions := make(map[uint64]int)
	derived := false
	for i := range events {
		e := &events[i]
		derived = derived || e.op.Mask != 0 || e.op.Kind == FetchAdd && !e.answered
		mentions[e.op.Value]++
		mentions[e.op.Compare]++
		if e.answered {
			mentions[e.answer]++
		}
	}
	var out []porcupine.Operation
	for i := range events {
		e := &events[i]
		if !e.answered {
			switch {
			case e.op.Kind == Read, watched && e.seen == 0 && !e.maybe:
				continue
			case e.seen != 0:
				e.ret = e.seen
			case e.op.Kind == CmpSwap:
				if !derived && e.op.Value != e.op.Compare && mentions[e.op.Value] == 1 {
					continue
				}
			}
		}
		out = append(out, e.operation())
	}
	return out
}

func (e *event) operation() porcupine.Operation {
	out := answer{known: e.answered, never: e.ret == never, before: e.answer}
	return porcupine.Operation{ClientId: e.client, Input: e.op, Output: out, Call: e.call, Return: e.ret}
}

// maxAround bounds the operations that an error names.
const maxAround = 12

// explain repeats the search to find out how many operations can be put in order, and returns a
// *BrokenError.
func (x *word) explain(m porcupine.Model, ops []porcupine.Operation) error {
	_, info := porcupine.CheckOperationsVerbose(m, withEnd(ops), 0)
	var longest []porcupine.Operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, p := range partition {
			p = slices.DeleteFunc(slices.Clone(p), func(o porcupine.Operation) bool { return o.Input == any(end{}) })
			if len(p) > len(longest) {
				longest = p
			}
		}
	}
	e := &BrokenError{Word: x.name, Ops: len(ops), Explained: len(longest)}
	at, done := any(state{value: x.first}), make(map[int64]bool)
	for _, o := range longest {
		_, at = m.Step(at, o.Input, o.Output)
		done[o.Call] = true
	}
	e.Around = append(e.Around, fmt.Sprintf("the word is %#x here", at.(state).value))
	// An operation can come next if no other remaining operation was answered before this one was
	// invoked.
	earliest := int64(never)
	for _, o := range ops {
		if !done[o.Call] {
			earliest = min(earliest, o.Return)
		}
	}
	for _, o := range ops {
		if !done[o.Call] && o.Call < earliest && len(e.Around) < maxAround {
			e.Around = append(e.Around, describe(o))
		}
	}
	return e
}

func describe(o porcupine.Operation) string {
	out := o.Output.(answer)
	what := fmt.Sprintf("client %d: %v", o.ClientId, o.Input)
	if o.ClientId < 0 {
		what = "the memory at the end: READ"
	}
	switch {
	case !out.known:
		return what + " without answer"
	case o.Input.(Op).Kind == Write:
		return what + " done"
	}
	return fmt.Sprintf("%s found %#x", what, out.before)
}
