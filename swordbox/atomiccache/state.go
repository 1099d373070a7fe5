package atomiccache

// State says on which connection the operations on a word travel, and what the switch knows about
// the value of the word. See the package comment.
type State uint8

const (
	Pass State = iota
	Busy
	Unknown
	Known
	Closing
	states // the number of states
)

var stateNames = [...]string{"Pass", "Busy", "Unknown", "Known", "Closing"}

func (s State) String() string { return stateNames[s] }

// Kind says how an operation travels.
type Kind uint8

const (
	// Wait: the operation waits in the switch. The caller asks again when Table.Changed returns the
	// word.
	Wait Kind = iota
	// Client: the switch forwards the request unchanged, on the client's connection.
	Client
	// Shared: the switch sends the request unchanged on the shared connection of the word.
	Shared
	// Write: the switch sends a WRITE of Decision.Value instead, on the word's shared connection.
	Write
	// EmptyWrite: the switch sends a WRITE of no bytes instead, on the word's shared connection. It
	// does not change the word.
	EmptyWrite
)

var kindNames = [...]string{"wait", "client", "shared", "WRITE", "empty WRITE"}

func (k Kind) String() string { return kindNames[k] }

type event uint8

const (
	evAtomic     event = iota // an atomic under a proven R_Key whose outcome is not known
	evHit                     // an atomic under a proven R_Key that will change the word
	evMiss                    // an atomic under a proven R_Key that will not change the word
	evWriteWhole              // a WRITE of one packet that sets the whole word
	evWritePart               // a WRITE of one packet that sets a part of the word, or after which the value of the word is not known
	evForeign                 // an operation that only the client's connection may carry
	evAnswered                // the response to the last operation sent has shown the value
	evDrained                 // the last operation in flight on clients' connections has ended
	evPatience                // operations have waited for Config.Patience
	evForget                  // the value is no longer certain
	evReset                   // a call of Word.Reset
	events                    // the number of events
)

// guard is a condition of an edge.
type guard uint8

const (
	always   guard = iota
	clear_         // nothing is in flight on the connections that Word.occupied looks at
	occupied       // an operation is in flight on those connections
)

// edge is one edge of the state diagram. If the event is an operation, the field does says how this
// operation travels.
type edge struct {
	from State
	on   event
	when guard
	to   State
	does Kind
}

// edges is the state diagram of a word.
var edges = [...]edge{
	// Pass: clients' connections carry every operation. An atomic under a proven R_Key makes the
	// word leave Pass.
	{Pass, evForeign, always, Pass, Client},
	{Pass, evWriteWhole, always, Pass, Client},
	{Pass, evWritePart, always, Pass, Client},
	{Pass, evAtomic, clear_, Unknown, Shared},
	{Pass, evAtomic, occupied, Busy, Wait},

	// Busy: new operations wait for those in flight on clients' connections, at most for
	// Config.Patience.
	{Busy, evForeign, always, Busy, Wait},
	{Busy, evWriteWhole, always, Busy, Wait},
	{Busy, evWritePart, always, Busy, Wait},
	{Busy, evAtomic, always, Busy, Wait},
	{Busy, evDrained, always, Unknown, Wait},
	{Busy, evPatience, always, Pass, Wait},

	// Unknown and Known: the shared connection carries every operation that it can. In Unknown it
	// carries one atomic at a time until an atomic is answered. The reason: only the response to
	// the last operation sent shows the value, and in a steady stream there would always be a later
	// operation.
	{Unknown, evAtomic, clear_, Unknown, Shared},
	{Unknown, evAtomic, occupied, Unknown, Wait},
	{Unknown, evWriteWhole, always, Known, Shared},
	{Unknown, evWritePart, always, Unknown, Shared},
	{Unknown, evAnswered, always, Known, Wait},
	{Unknown, evForeign, clear_, Busy, Client},
	{Unknown, evForeign, occupied, Closing, Wait},

	{Known, evHit, always, Known, Write},
	{Known, evMiss, always, Known, EmptyWrite},
	{Known, evWriteWhole, always, Known, Shared},
	{Known, evWritePart, always, Known, Shared},
	{Known, evForeign, clear_, Busy, Client},
	{Known, evForeign, occupied, Closing, Wait},
	{Known, evForget, always, Unknown, Wait},

	// Closing: new operations wait for those in flight on the shared connection. When these have
	// ended, the first new operation decides the next state.
	{Closing, evForeign, occupied, Closing, Wait},
	{Closing, evForeign, clear_, Busy, Client},
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

type cell struct {
	to   State
	does Kind
	ok   bool
}

// diagram holds the edges by state, event, and whether Word.occupied is true.
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
