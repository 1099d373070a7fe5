package words

import (
	"fmt"
	"strings"
)

// State is what the switch knows of a word. See the package comment.
type State uint8

// States.
const (
	Pass State = iota
	Busy
	Unknown
	Known
	Closing
	states // their number
)

var stateNames = [...]string{"Pass", "Busy", "Unknown", "Known", "Closing"}

// String is the name of the state.
func (s State) String() string { return stateNames[s] }

// Kind is what becomes of an operation.
type Kind uint8

// Kinds.
const (
	// Wait: ask again when the word has changed.
	Wait Kind = iota
	// Own: as it is, on the client's own connection.
	Own
	// Shared: as it is, on the shared connection of the word.
	Shared
	// Write: as a WRITE of Decision.Value, on the shared connection.
	Write
	// EmptyWrite: as a WRITE of nothing, on the shared connection: it leaves the word as it is.
	EmptyWrite
)

var kindNames = [...]string{"wait", "own", "shared", "WRITE", "empty WRITE"}

// String is the name of the kind.
func (k Kind) String() string { return kindNames[k] }

// event is what happens to a word.
type event uint8

const (
	evAtomic     event = iota // an atomic under a proven key; its outcome is not known
	evHit                     // an atomic under a proven key that will change the word
	evMiss                    // an atomic under a proven key that will not
	evWriteWhole              // a WRITE of one packet that sets the whole word
	evWritePart               // a WRITE of one packet that leaves a part of it, or makes nothing known
	evForeign                 // what only an own connection may carry
	evAnswered                // the last operation sent has told the value
	evDrained                 // nothing is on its way on own connections any more
	evPatience                // those that wait have waited long enough
	evForget                  // the value is not certain any more
	evReset                   // the server has started anew
	events                    // their number
)

var eventNames = [...]string{
	"atomic", "atomic that changes", "atomic that does not", "WRITE", "partial WRITE", "foreign",
	"answer of the last", "drained", "patience", "forget", "reset",
}

// String is the name of the event.
func (e event) String() string { return eventNames[e] }

// guard is a condition of an edge.
type guard uint8

const (
	always   guard = iota
	clear_         // nothing is on its way in the place that must be empty: see Word.occupied
	occupied       // something is
)

var guardNames = [...]string{"", ", clear", ", occupied"}

// edge is one edge of the state diagram. does is what becomes of the operation, if the event is one.
type edge struct {
	from State
	on   event
	when guard
	to   State
	does Kind
}

// edges is the state diagram of a word.
var edges = [...]edge{
	// Own connections carry everything. An atomic under a proven key moves the word.
	{Pass, evForeign, always, Pass, Own},
	{Pass, evWriteWhole, always, Pass, Own},
	{Pass, evWritePart, always, Pass, Own},
	{Pass, evAtomic, clear_, Unknown, Shared},
	{Pass, evAtomic, occupied, Busy, Wait},

	// Everybody waits for the end of what is on its way on own connections, but not for ever.
	{Busy, evForeign, always, Busy, Wait},
	{Busy, evWriteWhole, always, Busy, Wait},
	{Busy, evWritePart, always, Busy, Wait},
	{Busy, evAtomic, always, Busy, Wait},
	{Busy, evDrained, always, Unknown, Wait},
	{Busy, evPatience, always, Pass, Wait},

	// The shared connection carries everything that it can.
	// One at a time until it is answered: in a steady stream the last one sent never would be.
	{Unknown, evAtomic, clear_, Unknown, Shared},
	{Unknown, evAtomic, occupied, Unknown, Wait},
	{Unknown, evWriteWhole, always, Known, Shared},
	{Unknown, evWritePart, always, Unknown, Shared},
	{Unknown, evAnswered, always, Known, Wait},
	{Unknown, evForeign, clear_, Busy, Own},
	{Unknown, evForeign, occupied, Closing, Wait},

	{Known, evHit, always, Known, Write},
	{Known, evMiss, always, Known, EmptyWrite},
	{Known, evWriteWhole, always, Known, Shared},
	{Known, evWritePart, always, Known, Shared},
	{Known, evForeign, clear_, Busy, Own},
	{Known, evForeign, occupied, Closing, Wait},
	{Known, evForget, always, Unknown, Wait},

	// Everybody waits for the end of what is on its way on the shared connection. The first one that comes then
	// decides where the word goes.
	{Closing, evForeign, occupied, Closing, Wait},
	{Closing, evForeign, clear_, Busy, Own},
	{Closing, evWriteWhole, occupied, Closing, Wait},
	{Closing, evWriteWhole, clear_, Known, Shared},
	{Closing, evWritePart, occupied, Closing, Wait},
	{Closing, evWritePart, clear_, Unknown, Shared},
	{Closing, evAtomic, occupied, Closing, Wait},
	{Closing, evAtomic, clear_, Unknown, Shared},

	{Busy, evReset, always, Pass, Wait},
	{Unknown, evReset, always, Pass, Wait},
	{Known, evReset, always, Pass, Wait},
	{Closing, evReset, always, Pass, Wait},
}

// cell is an entry of the compiled diagram.
type cell struct {
	to   State
	does Kind
	ok   bool
}

// diagram is edges by state, event, and whether the place is occupied.
var diagram = func() (t [states][events][2]cell) {
	for _, e := range edges {
		c := &t[e.from][e.on]
		for i, when := range []guard{clear_, occupied} {
			if e.when == always || e.when == when {
				c[i] = cell{e.to, e.does, true}
			}
		}
	}
	return t
}()

// Graphviz prints the state diagram in the language of dot, one edge a line.
func Graphviz() string {
	var b strings.Builder
	b.WriteString("digraph word {\n")
	for _, e := range edges {
		label := e.on.String() + guardNames[e.when]
		if e.on <= evForeign {
			label += ": " + e.does.String()
		}
		fmt.Fprintf(&b, "  %v -> %v [label=%q];\n", e.from, e.to, label)
	}
	b.WriteString("}\n")
	return b.String()
}
