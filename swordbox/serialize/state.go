package serialize

import "github.com/rdmalab/rdmalab/swordbox/transitions"

// A sequencer has four explicit states, each with its table of transitions. An event without an
// edge leaves the state as it is. testdata/states.dot is their diagram.

// phase is how far a sequencer is between the first request of its flow and the flow's end.
type phase uint8

const (
	// untouched: the PSN that the server expects is not known; no request of the flow was forwarded
	// or dropped, neither before the sequencer existed nor since.
	untouched phase = iota
	// passing: that PSN is not known; every request of the flow was forwarded.
	passing
	// partial: that PSN is not known; requests may have been forwarded before the sequencer
	// existed, or one was dropped: it is new to the server when it comes again. The sequencer
	// itself has forwarded none.
	partial
	// partialPassing: as partial, and the sequencer has forwarded a request.
	partialPassing
	// synced: the PSN that the server expects is known, and requests may move.
	synced
	// refused: the server has refused a request by a fatal NAK; the client's queue pair is in the
	// error state, or will be.
	refused
	// closed: the flow has ended. Requests on shared connections may still be in flight.
	closed

	phases // their number
)

var phaseNames = [...]string{"untouched", "passing", "partial", "partialPassing", "synced", "refused", "closed"}

// String is the name of the phase.
func (p phase) String() string { return phaseNames[p] }

type phaseEvent uint8

const (
	evForwarded phaseEvent = iota // a request was forwarded while the expected PSN was not known
	evDropped                     // a request was dropped while the expected PSN was not known
	// a request arrived that is certainly the one that the server expects
	evSynced
	evRefused // a request was refused by a fatal NAK
	evEnded   // the flow has ended

	phaseEvents
)

var phaseEventNames = [...]string{"forwarded", "dropped", "synced", "refused", "ended"}

// String is the name of the event.
func (e phaseEvent) String() string { return phaseEventNames[e] }

// nakState reports whether the client's requests have a gap, and whether the client has got a NAK for
// it.
type nakState uint8

const (
	// inOrder: there is no gap.
	inOrder nakState = iota
	// nakSent: a sequence NAK for the present gap was sent to the client.
	nakSent
	// nakOwed: a request was dropped for lack of room. The NAK is sent when there is room: earlier,
	// the client would only use up its retries.
	nakOwed

	nakStates
)

var nakStateNames = [...]string{"inOrder", "nakSent", "nakOwed"}

// String is the name of the state.
func (s nakState) String() string { return nakStateNames[s] }

type nakEvent uint8

const (
	evInOrder nakEvent = iota // the request with the expected PSN arrived
	evNak                     // a sequence NAK was sent
	evNoRoom                  // a request was dropped for lack of room
	evRoom                    // there is room again, and the NAK that was owed is sent

	nakEvents
)

var nakEventNames = [...]string{"in order", "NAK", "no room", "room"}

// String is the name of the event.
func (e nakEvent) String() string { return nakEventNames[e] }

// message says which message the next packet on the client's connection must continue.
type message uint8

const (
	// between: the next packet begins a message.
	between message = iota
	// inMessage: a message of several packets has begun and not ended.
	inMessage
	// openRead: a READ is in flight, and how many PSNs it takes is not known, because the path MTU
	// is not. Nothing else is in flight, and nothing is sent behind it.
	openRead

	messages
)

var messageNames = [...]string{"between", "inMessage", "openRead"}

// String is the name of the state.
func (s message) String() string { return messageNames[s] }

type messageEvent uint8

const (
	evFirst    messageEvent = iota // the first packet of a message of several packets was sent
	evLast                         // the last packet of that message was sent
	evOpenRead                     // a READ of unknown span was sent
	evSpan                         // the span is known from its response

	messageEvents
)

var messageEventNames = [...]string{"first", "last", "READ of unknown span", "span known"}

// String is the name of the event.
func (e messageEvent) String() string { return messageEventNames[e] }

// recordState is the progress of a request in the window.
type recordState uint8

const (
	// inFlight: the server has not answered it.
	inFlight recordState = iota
	// done: the server has answered it.
	done
	// owed: done, and an answer to the client waits behind a READ before it that is being executed
	// again.
	owed
	// redoing: a READ that was done is being executed again on the client's connection; answers
	// behind it wait.
	redoing
	// redoingMoved: the same on a shared connection.
	redoingMoved
	// redoneLate: as redoingMoved, but the answers behind it do not wait any more.
	redoneLate

	recordStates
)

var recordStateNames = [...]string{"inFlight", "done", "owed", "redoing", "redoingMoved", "redoneLate"}

// String is the name of the state.
func (s recordState) String() string { return recordStateNames[s] }

type recordEvent uint8

const (
	evAnswered   recordEvent = iota // the server answered it
	evOwe                           // its answer has to wait
	evPaid                          // the answer that was owed was sent
	evRedo                          // it is sent again on the client's connection
	evRedoMoved                     // it is sent again on a shared connection
	evWaitNoMore                    // the answers behind it do not wait any more
	evRedone                        // its response has arrived again, or will never arrive

	recordEvents
)

var recordEventNames = [...]string{"answered", "owe", "paid", "redo", "redo moved", "wait no more", "redone"}

// String is the name of the event.
func (e recordEvent) String() string { return recordEventNames[e] }

var phaseEdges = []transitions.Edge[phase, phaseEvent]{
	{untouched, evForwarded, passing},
	{untouched, evDropped, partial},
	{passing, evDropped, partialPassing},
	{partial, evForwarded, partialPassing},
	{untouched, evSynced, synced},
	{passing, evSynced, synced},
	{partial, evSynced, synced},
	{partialPassing, evSynced, synced},
	{synced, evRefused, refused},
	{untouched, evEnded, closed},
	{passing, evEnded, closed},
	{partial, evEnded, closed},
	{partialPassing, evEnded, closed},
	{synced, evEnded, closed},
	{refused, evEnded, closed},
}

var nakEdges = []transitions.Edge[nakState, nakEvent]{
	{inOrder, evNak, nakSent},
	{inOrder, evNoRoom, nakOwed},
	{nakSent, evInOrder, inOrder},
	{nakSent, evNoRoom, nakOwed},
	{nakOwed, evRoom, nakSent},
}

var messageEdges = []transitions.Edge[message, messageEvent]{
	{between, evFirst, inMessage},
	{inMessage, evLast, between},
	{between, evOpenRead, openRead},
	{openRead, evSpan, between},
}

var recordEdges = []transitions.Edge[recordState, recordEvent]{
	{inFlight, evAnswered, done},
	{done, evOwe, owed},
	{owed, evPaid, done},
	{done, evRedo, redoing},
	{done, evRedoMoved, redoingMoved},
	{redoneLate, evRedoMoved, redoingMoved},
	{redoing, evWaitNoMore, done},
	{redoingMoved, evWaitNoMore, redoneLate},
	{redoing, evRedone, done},
	{redoingMoved, evRedone, done},
	{redoneLate, evRedone, done},
}

var (
	nextPhase   [phases][phaseEvents]phase
	nextNak     [nakStates][nakEvents]nakState
	nextMessage [messages][messageEvents]message
	nextRecord  [recordStates][recordEvents]recordState
)

func init() {
	transitions.Fill(phases, phaseEvents, phaseEdges, func(from phase, on phaseEvent) *phase { return &nextPhase[from][on] })
	transitions.Fill(nakStates, nakEvents, nakEdges, func(from nakState, on nakEvent) *nakState { return &nextNak[from][on] })
	transitions.Fill(messages, messageEvents, messageEdges, func(from message, on messageEvent) *message { return &nextMessage[from][on] })
	transitions.Fill(recordStates, recordEvents, recordEdges, func(from recordState, on recordEvent) *recordState { return &nextRecord[from][on] })
}

func (p *phase) on(e phaseEvent)                   { *p = nextPhase[*p][e] }
func (s *nakState) on(e nakEvent)                  { *s = nextNak[*s][e] }
func (s *message) on(e messageEvent)               { *s = nextMessage[*s][e] }
func (s recordState) on(e recordEvent) recordState { return nextRecord[s][e] }

// isLoose reports whether the PSN that the server expects is not known: every request passes as it
// is.
func (p phase) isLoose() bool { return p < synced }

// isWhole reports whether no request was forwarded before the sequencer existed, and none was
// dropped since. The result is meaningful only while the phase is loose.
func (p phase) isWhole() bool { return p == untouched || p == passing }

// hasForwarded reports whether the sequencer has forwarded a request. The result is meaningful only
// while the phase is loose.
func (p phase) hasForwarded() bool { return p == passing || p == partialPassing }

// isRedo reports whether answers behind the record wait for it.
func (s recordState) isRedo() bool { return s == redoing || s == redoingMoved }
