package conntrack

// Class says whether a request is in order, ahead or a duplicate for a responder that has received
// every request which the switch has forwarded.
type Class uint8

// Classes of requests. Responses have none.
const (
	// Unsynced: the expected PSN of the flow is not known yet.
	Unsynced Class = iota
	// New: in order, with the expected PSN.
	New
	// Ahead: a request before it is missing. A responder drops it and answers the first such
	// request with a sequence NAK.
	Ahead
	// Duplicate: its PSN was received before.
	Duplicate
)

var classNames = [...]string{"unsynced", "new", "ahead", "duplicate"}

// String is the name of the class.
func (c Class) String() string { return classNames[c] }

// Reason says why the table did not use a packet. A program forwards a packet with a reason other
// than Fine unchanged, or drops it; the packet must not change the state of a flow.
type Reason uint8

// Reasons.
const (
	// Fine: the packet was used.
	Fine Reason = iota
	// Untracked: the packet does not belong to a reliable connection.
	Untracked
	// Unknown: the packet is a response, and the table does not know which flow it answers, or not
	// yet.
	Unknown
	// Spoofed: the packet arrived at another port than the one of its source address.
	Spoofed
	// NoRoom: the packet belongs to a new connection, and the table is full.
	NoRoom
	// Quarantined: the connection of the packet has ended. Or another connection ended a short time
	// ago under the same key, and the connection manager has not announced a new one.
	Quarantined
	// Implausible: the packet is a response to a PSN that was not requested.
	Implausible
	// Corrupt: the ICRC is wrong.
	Corrupt

	numReasons
)

var reasonNames = [numReasons]string{
	"fine", "untracked", "unknown", "spoofed", "no room", "quarantined", "implausible", "corrupt",
}

// String is the name of the reason.
func (r Reason) String() string { return reasonNames[r] }

// Seen is what the table says about a packet.
type Seen struct {
	// Flow is the flow of a request, or the flow that a response answers; nil if Bad is not Fine
	// (but Spoofed, Quarantined and Implausible packets may name the flow that they claimed).
	Flow *Flow
	// Response tells responses from requests.
	Response bool
	// Class is the class of a request.
	Class Class
	// Alone: all requests that the requester sent before this New one have been answered. Not valid
	// for pinned flows.
	Alone bool
	// Span is how many PSNs a request takes: 1, or as many as a READ has responses; 0: not known,
	// because the MTU is not.
	Span int
	// Bad is why the packet was not used; Fine if it was.
	Bad Reason
}

// refused is what Packet returns for a packet that must not be used.
func refused(fl *Flow, response bool, bad Reason) Seen {
	if response {
		fl = fl.Peer
	}
	return Seen{Flow: fl, Response: response, Bad: bad}
}
