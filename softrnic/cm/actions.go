package cm

import (
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// Actions has the results of a step: datagrams that the caller must send in order, and events for
// their owners. The caller owns it and calls Reset between steps.
type Actions struct {
	Tx     []Datagram
	Events []Event
}

// Reset empties a and keeps its memory.
func (a *Actions) Reset() {
	a.Tx = a.Tx[:0]
	clear(a.Events) // so that the old events do not keep their messages in memory
	a.Events = a.Events[:0]
}

// Datagram is a MAD to be sent to the peer's queue pair 1.
type Datagram struct {
	Local, Remote netip.Addr
	// PKey is the P_Key of the exchange's partition.
	PKey uint16
	MAD  [mad.Size]byte
}

// Way has the addresses and the partition of a MAD. The addresses have no zone. For a received MAD,
// PKey is the entry of this port's P_Key table that matched; answers are sent with the same P_Key.
type Way struct {
	Local, Peer netip.Addr
	PKey        uint16
}

// EventKind is the kind of an event.
type EventKind uint8

// Events.
const (
	// EventRequest: a peer asks for a connection (REQ). Call Accept or Reject.
	EventRequest EventKind = iota + 1
	// EventReply: the peer accepts (REP). Call Ready or Reject.
	EventReply
	// EventEstablished: the initiator of an accepted request is ready. Its RTU, or its first packet,
	// has arrived.
	EventEstablished
	// EventRejected: before the connection was established, the peer has refused it or has not
	// received an answer in time, or the machine itself has refused the peer's REP as stale. The
	// message is the REJ, with a Reason.
	EventRejected
	// EventUnreachable: the peer did not answer, and the retries are used up. Or the application did
	// not answer an EventRequest within Config.Pending.
	EventUnreachable
	// EventDisconnected: the connection has ended, by either side.
	EventDisconnected
	// EventUnanswered: this side has ended the connection, and the peer has not answered the DREQ.
	EventUnanswered
	// EventClosed: the connection was removed and its number is free; if it has ended after it was
	// accepted, its time-wait is over. It is the last event of a connection.
	EventClosed
	// EventResolve: a peer asks for the queue pair of a datagram service (SIDR_REQ). Call Answer.
	EventResolve
	// EventResolved: the answer to Resolve (SIDR_REP).
	EventResolved
)

var eventNames = [...]string{
	"", "request", "reply", "established", "rejected", "unreachable", "disconnected", "unanswered", "closed", "resolve", "resolved",
}

func (k EventKind) String() string { return eventNames[k] }

// Event reports a change of a connection to the owner of the connection.
type Event struct {
	Kind  EventKind
	Conn  mad.CommID // the number of the connection on this side
	Owner uint64     // of the connection; see the package comment
	// Local and Peer are the addresses between which the datagrams go.
	Local, Peer netip.Addr
	// Message is the message that caused the event: *mad.REQ, *mad.REP, *mad.REJ, *mad.SIDRReq or
	// *mad.SIDRRep; nil for other events. The receiver may keep it.
	Message mad.Message
}

func (e Event) String() string {
	s := fmt.Sprintf("%v owner %d", e.Kind, e.Owner)
	if rej, ok := e.Message.(*mad.REJ); ok {
		s += ": " + rej.Reason.String()
	}
	return s
}
