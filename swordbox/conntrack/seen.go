package conntrack

// Class is what a request is to a responder that has received every request that the switch sent
// on.
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

// Reason is why a packet was not used for tracking. A packet with a reason other than Fine is to be
// forwarded unchanged or dropped; it must not change any state that belongs to a flow.
type Reason uint8

// Reasons.
const (
	// Fine: the packet was used.
	Fine Reason = iota
	// Untracked: not of a reliable connection.
	Untracked
	// Unknown: a response to a flow that is not known, or not known yet.
	Unknown
	// Spoofed: it came in at another port than its source address belongs to.
	Spoofed
	// NoRoom: it belongs to a new connection, and the table is full.
	NoRoom
	// Quarantined: its connection has ended, or another connection ended under the same key a short
	// time ago and the connection manager has not announced a new one.
	Quarantined
	// Implausible: a response to a PSN that was not requested.
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

// Seen is what a Table returns about a packet.
type Seen struct {
	// Flow is the flow of a request, or the flow that a response answers; nil if Bad is not Fine
	// (but Spoofed, Quarantined and Implausible packets may name the flow that they claimed).
	Flow *Flow
	// Response tells responses from requests.
	Response bool
	// Class is that of a request.
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
