package transport

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// event is a cause of a state change of a queue pair.
type event uint8

const (
	evToInit event = iota
	evToRTR
	evToRTS
	evToSQD
	evResumeRTS
	evToError
	evToReset
	evFault     // a work request or a request from the peer failed
	evSendFault // a work request of an unreliable service failed
)

var eventNames = [...]string{"ToInit", "ToRTR", "ToRTS", "ToSQD", "ResumeRTS", "ToError", "ToReset", "fault", "send fault"}

func (e event) String() string { return eventNames[e] }

// transition is one edge of the state diagram.
type transition struct {
	from verbs.QPState
	on   event
	to   verbs.QPState
}

// rcStates is the state diagram of a queue pair of a reliable connection (IBTA 10.3.1/rc). It has
// no SQE, because a failed send of RC goes to the error state. ToError and ToReset are legal in
// every state.
var rcStates = []transition{
	{verbs.StateReset, evToInit, verbs.StateInit},
	{verbs.StateInit, evToInit, verbs.StateInit},
	{verbs.StateInit, evToRTR, verbs.StateRTR},
	{verbs.StateRTR, evToRTS, verbs.StateRTS},
	{verbs.StateRTS, evToSQD, verbs.StateSQD},
	{verbs.StateSQD, evResumeRTS, verbs.StateRTS},

	{verbs.StateRTR, evFault, verbs.StateError},
	{verbs.StateRTS, evFault, verbs.StateError},
	{verbs.StateSQD, evFault, verbs.StateError},

	{verbs.StateReset, evToError, verbs.StateError},
	{verbs.StateInit, evToError, verbs.StateError},
	{verbs.StateRTR, evToError, verbs.StateError},
	{verbs.StateRTS, evToError, verbs.StateError},
	{verbs.StateSQD, evToError, verbs.StateError},
	{verbs.StateError, evToError, verbs.StateError},

	{verbs.StateReset, evToReset, verbs.StateReset},
	{verbs.StateInit, evToReset, verbs.StateReset},
	{verbs.StateRTR, evToReset, verbs.StateReset},
	{verbs.StateRTS, evToReset, verbs.StateReset},
	{verbs.StateSQD, evToReset, verbs.StateReset},
	{verbs.StateError, evToReset, verbs.StateReset},
}

// unreliableStates is the state diagram of UC and UD: a failed send stops only the send queue,
// until ResumeRTS (IBTA 10.3.1/sqe).
var unreliableStates = append(rcStates[:len(rcStates):len(rcStates)],
	transition{verbs.StateRTS, evSendFault, verbs.StateSQE},
	transition{verbs.StateSQD, evSendFault, verbs.StateSQE},
	transition{verbs.StateSQE, evResumeRTS, verbs.StateRTS},
	transition{verbs.StateSQE, evFault, verbs.StateError},
	transition{verbs.StateSQE, evToError, verbs.StateError},
	transition{verbs.StateSQE, evToReset, verbs.StateReset},
)

// next returns the state in which the event `on` results when the state is `from`. It fails with a
// *transitionError if the diagram has no such transition.
func next(diagram []transition, from verbs.QPState, on event) (verbs.QPState, error) {
	for i := range diagram {
		if t := &diagram[i]; t.from == from && t.on == on {
			return t.to, nil
		}
	}
	return from, &transitionError{From: from, Event: on.String(), LegalIn: legalIn(diagram, on)}
}

func legalIn(diagram []transition, on event) []verbs.QPState {
	var from []verbs.QPState
	for _, t := range diagram {
		if t.on == on {
			from = append(from, t.from)
		}
	}
	return from
}

// transitionError is an illegal state change. It wraps verbs.ErrState.
type transitionError struct {
	From    verbs.QPState
	Event   string // the method that was called
	LegalIn []verbs.QPState
}

func (e *transitionError) Error() string {
	return fmt.Sprintf("modify qp: %s %v: the state is %v, legal in %v", e.Event, verbs.ErrState, e.From, e.LegalIn)
}

func (e *transitionError) Unwrap() error { return verbs.ErrState }
