package serialize

import (
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/transitions"
)

// A sequencer has three explicit states (phase, nakState, message), and each of its records has one
// (recordState). Each of the four has a table of transitions. An event without an edge leaves the
// state as it is. testdata/states.dot is their diagram.

// phase says what the sequencer knows of the PSN that the server expects, and whether the flow has
// failed or ended.
type phase uint8

const (
	// untouched: the PSN that the server expects is not known. No request of the flow was forwarded
	// or dropped so far, neither by the sequencer nor before it existed.
	untouched phase = iota
	// passing: the PSN that the server expects is not known. Every request of the flow was
	// forwarded.
	passing
	// partial: the PSN that the server expects is not known. Requests may have been forwarded
	// before the sequencer existed, or the switch has dropped a request, whose retransmission will
	// be new to the server. The sequencer itself has forwarded none.
	partial
	// partialPassing: like partial, but the sequencer has forwarded a request.
	partialPassing
	// synced: the PSN that the server expects is known, and requests may move.
	synced
	// refused: the server or the switch has refused a request by a fatal NAK; the client's queue
	// pair is in the error state, or will be.
	refused
	// closed: the flow has ended. Requests on shared connections may still be in flight.
	closed

	phases // the number of phases
)

var phaseNames = [...]string{"untouched", "passing", "partial", "partialPassing", "synced", "refused", "closed"}

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

// nakState says whether a request of the client is missing, and whether the switch has sent a NAK
// for it.
type nakState uint8

const (
	// inOrder: no request of the client is missing.
	inOrder nakState = iota
	// nakSent: a sequence NAK for the present gap was sent to the client.
	nakSent
	// nakOwed: the switch has dropped a request because it had no room, or because a READ of
	// unknown span is in flight (openRead). It sends the NAK later (release). If it sent the NAK
	// earlier, the client would only use up its retries.
	nakOwed

	nakStates
)

var nakStateNames = [...]string{"inOrder", "nakSent", "nakOwed"}

func (s nakState) String() string { return nakStateNames[s] }

type nakEvent uint8

const (
	evInOrder nakEvent = iota // the request with the expected PSN arrived
	evNak                     // a sequence NAK was sent
	evNoRoom                  // a request was dropped for lack of room, or behind an openRead
	evRoom                    // no NAK is owed any more: there is room for the next request, or the flow ends

	nakEvents
)

// message says whether the next packet on the client's connection begins a message or continues
// one.
type message uint8

const (
	// between: the next packet begins a message.
	between message = iota
	// inMessage: a message of several packets has begun and not ended.
	inMessage
	// openRead: a READ is in flight, and the switch does not know how many PSNs it takes, because
	// it does not know the path MTU. No other request is in flight, and the switch sends none until
	// the READ is answered.
	openRead

	messages
)

var messageNames = [...]string{"between", "inMessage", "openRead"}

func (s message) String() string { return messageNames[s] }

type messageEvent uint8

const (
	evFirst    messageEvent = iota // the first packet of a message of several packets was sent
	evLast                         // the last packet of that message was sent
	evOpenRead                     // a READ was sent that takes an unknown number of PSNs (its span)
	evSpan                         // the response has shown the span of that READ

	messageEvents
)

// recordState is what has happened to a request in the window.
type recordState uint8

const (
	// inFlight: the server has not answered the request.
	inFlight recordState = iota
	// done: the server has answered the request.
	done
	// owed: the server has answered the request. The switch delays the answer to the client,
	// because an earlier READ is being executed again.
	owed
	// redoing: a READ that was done is being executed again on the client's connection. Answers to
	// later requests wait for it.
	redoing
	// redoingMoved: like redoing, but on a shared connection.
	redoingMoved
	// redoneLate: like redoingMoved, but answers to later requests no longer wait for the READ.
	redoneLate

	recordStates
)

type recordEvent uint8

const (
	evAnswered   recordEvent = iota // the server answered the request
	evOwe                           // the answer to the client has to wait
	evPaid                          // the owed answer was sent
	evRedo                          // the READ is sent again on the client's connection
	evRedoMoved                     // the READ is sent again on a shared connection
	evWaitNoMore                    // answers to later requests stop waiting for the READ
	evRedone                        // the response to the READ has arrived again, or will never arrive

	recordEvents
)

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

// isLoose reports whether the PSN that the server expects is not known; then every request is
// forwarded unchanged.
func (p phase) isLoose() bool { return p < synced }

// isWhole reports whether the sequencer has seen all requests of the flow, and has dropped none.
// The result is meaningful only while the PSN that the server expects is not known (isLoose).
func (p phase) isWhole() bool { return p == untouched || p == passing }

// hasForwarded reports whether the sequencer has forwarded a request. The result is meaningful only
// while the PSN that the server expects is not known (isLoose).
func (p phase) hasForwarded() bool { return p == passing || p == partialPassing }

// isRedo reports whether answers to later requests wait for the record's READ.
func (s recordState) isRedo() bool { return s == redoing || s == redoingMoved }

// States implements handler.Stater: the states of the sequencers, of the words and of the shared
// connections.
func (m *Machine) States(visit func(table string, entry uint32, state string)) {
	for _, l := range m.flows.list {
		if l == nil {
			continue
		}
		visit("phase", l.index, l.phase.String())
		visit("NAK", l.index, l.naks.String())
		visit("message", l.index, l.conn.msg.String())
		visit("place", l.index, l.placeName())
		visit("answers", l.index, l.replies.window.answersName())
	}
	entry := uint32(0)
	m.words.Each(func(w *atomiccache.Word) {
		visit("word", entry, w.State.String())
		entry++
	})
	entry = 0
	for _, s := range m.servers {
		for _, k := range s.links {
			visit("shared connection", entry, k.conn.State().String())
			entry++
		}
	}
}

// placeName says in words where the flow's requests are sent now: on the client's connection or
// on shared ones. It adds whether the flow has held requests.
func (l *sequencer) placeName() string {
	switch own := l.place == placeOwn; {
	case own && l.waits.held.n > 0:
		return "own, held"
	case own:
		return "own"
	case l.waits.held.n > 0:
		return "shared, held"
	}
	return "shared"
}

// answersName says whether the window has answers that wait, or READs that are executed again.
func (w *window) answersName() string {
	switch {
	case w.owed > 0:
		return "owed"
	case w.redos > 0:
		return "redoing"
	case w.outstanding() > 0:
		return "inFlight"
	}
	return "done"
}
