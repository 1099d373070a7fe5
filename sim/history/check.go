package history

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// MostSteps bounds the search for an order of the operations on a word. A step tries one operation
// in one state; a few hundred operations take some ten thousand steps.
const MostSteps = 1 << 25

// UndecidedError is the error of a search that has reached its bound of steps without a result.
type UndecidedError struct {
	Word       string
	Ops, Steps int
}

func (e *UndecidedError) Error() string {
	return fmt.Sprintf("word %s: no verdict on %d operations in %d steps", e.Word, e.Ops, e.Steps)
}

// BrokenError is the error for a word whose answers no order of the operations explains.
type BrokenError struct {
	Word string
	Ops  int
	// Explained is the length of the longest sequence of operations that has an order. Around
	// describes the operations of which one must be next in that order, though none can be.
	Explained int
	Around    []string
	// Cut is the number of steps after which the search for this sequence was ended; 0 means that it came to its end.
	Cut int
}

func (e *BrokenError) Error() string {
	if e.Cut > 0 {
		return fmt.Sprintf("word %s: the history of %d operations is not linearizable; where is not known, because the search for the longest order was ended after %d steps; "+
			"the longest one so far has %d operations, then none of these was tried or can follow:\n    %s", e.Word, e.Ops, e.Cut, e.Explained, strings.Join(e.Around, "\n    "))
	}
	return fmt.Sprintf("word %s: the history is not linearizable: %d of %d operations have an order, then none of these can follow:\n    %s",
		e.Word, e.Explained, e.Ops, strings.Join(e.Around, "\n    "))
}

// state is the state of a word in the search: its value, and whether the input end has come.
type state struct {
	value uint64
	ended bool
}

// end is an input that the search puts behind all operations that were answered. An operation that
// was never answered stands before end if it changes the word there. Otherwise it stands behind
// end, where it has no effect. This loses no order: an operation without an answer and without an
// effect can be moved to the end of any order. Without end, the search would try each such
// operation at each place.
type end struct{}

// model returns the description of a word for the checker porcupine. The word has the value `first`
// at the beginning. An input is an Op or end, an output is an answer.
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
			case st.ended: // only operations that were never answered may follow
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

// decide is porcupine.CheckOperations with a bound on the steps of the search. After `most` steps
// the model rejects every operation, so that the search ends. Then decided is false, unless an
// order was found.
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

// answer is the outcome of an operation, as far as its client knows it. If known is true, before is
// the value of the word before the operation. If never is true, the operation has no answer, and
// may take place at any time.
type answer struct {
	known, never bool
	before       uint64
}

// Check checks the history of every word. final returns the value that a word has at the end, and
// false if that is not known. most bounds the steps of each search for an order. The error is a
// *BrokenError for the first word that has one or, if there is none, such an *UndecidedError.
func (l *Log) Check(final func(w int) (uint64, bool), most int) error {
	var undecided error
	for w := range l.words {
		err := l.check(w, final, most)
		if _, gaveUp := errors.AsType[*UndecidedError](err); gaveUp {
			undecided = cmp.Or(undecided, err)
		} else if err != nil {
			return err
		}
	}
	return undecided
}

func (l *Log) check(w int, final func(w int) (uint64, bool), most int) error {
	x := &l.words[w]
	events := slices.Clone(x.events)
	if v, ok := final(w); ok {
		events = append(events, event{op: Op{Kind: Read}, client: -1, call: l.clock + 1, ret: l.clock + 2, answered: true, answer: v})
	}
	m := model(x.first)
	// If the memory was watched, a first search places each operation that has changed it at the
	// instant of the change (asSeen). That explains most histories, and this search is short.
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
	return x.explain(m, ops, most)
}

// asSeen assigns every change of the memory to one of the operations that may have made it. This
// operation then takes place at the instant of the change. asSeen omits other operations without an
// answer. If the remaining operations have a linearizable order, the whole history has one,
// whichever operations were chosen. If not, the history may still have one.
func (x *word) asSeen(events []event) []porcupine.Operation {
	events = slices.Clone(events)
	for _, c := range x.changes {
		best := -1
		for _, i := range c.by {
			e := &events[i]
			switch {
			case e.call == e.ret, e.answered && e.op.Kind != Write && e.answer != c.before: // the operation belongs to an earlier change, or its answer is not the value before change c
			case best < 0, e.ret < events[best].ret: // of several, the one that was answered first: the others may have made a later change
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

// operations returns the events as operations, without those that have no answer and that no other
// answer needs as an explanation: READs; operations that have not changed the word, if the word is
// watched (Log.Watch); and a CAS whose new value is in no other operation or answer. It keeps such
// a CAS if a masked WRITE or a FETCH_ADD without an answer can make values that no operation names.
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

// maxAround bounds the number of operations that an error describes.
const maxAround = 12

// explainWork bounds the search of explain: its steps times the operations of the word, because a step of this search
// takes as long as the word has operations.
const explainWork = 1 << 27

// explain is called when no order was found. It repeats the search to find out how many operations
// can be put in order, and returns a *BrokenError. The search ends after at most `most` steps, and after fewer if there
// are many operations.
func (x *word) explain(m porcupine.Model, ops []porcupine.Operation, most int) error {
	most = min(most, explainWork/max(1, len(ops)))
	bounded, steps := m, 0
	bounded.Step = func(state, input, output any) (bool, any) {
		if steps++; steps > most {
			return false, state
		}
		return m.Step(state, input, output)
	}
	_, info := porcupine.CheckOperationsVerbose(bounded, withEnd(ops), 0)
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
	if steps > most {
		e.Cut = most
	}
	at, done := any(state{value: x.first}), make(map[int64]bool)
	for _, o := range longest {
		_, at = m.Step(at, o.Input, o.Output)
		done[o.Call] = true
	}
	e.Around = append(e.Around, fmt.Sprintf("the word is %#x here", at.(state).value))
	// An operation can come next if none of the other remaining operations was answered before this
	// one was invoked.
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
