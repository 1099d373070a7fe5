package conntrack

// Class is what a request is to a responder that has got all that the switch sent on.
type Class uint8

// Classes of requests. Responses have none.
const (
	// Unsynced: the row's expected PSN is not known yet.
	Unsynced Class = iota
	// New: it is the expected one.
	New
	// Ahead: something before it is missing. A responder drops it and answers the first one with a sequence NAK.
	Ahead
	// Duplicate: it came before.
	Duplicate
)

var classNames = [...]string{"unsynced", "new", "ahead", "duplicate"}

// String is the name of the class.
func (c Class) String() string { return classNames[c] }

// Reason says why a packet was not used for tracking. A packet with a reason is to be sent on as it is, or dropped; it
// must not change anything that belongs to a row.
type Reason uint8

// Reasons.
const (
	Fine Reason = iota
	// Untracked: not of a reliable connection.
	Untracked
	// Unknown: a response, and the row that it answers is not known (yet).
	Unknown
	// Spoofed: it came in at another port than its source address belongs to.
	Spoofed
	// NoRoom: a new connection, and the table is full.
	NoRoom
	// Quarantined: its connection has ended, or it was announced by nobody so soon after another one under the same key.
	Quarantined
	// Implausible: a response to something that was not asked.
	Implausible
	// Corrupt: the ICRC is wrong.
	Corrupt

	numReasons
)

var reasonNames = [numReasons]string{"fine", "untracked", "unknown", "spoofed", "no room", "quarantined", "implausible", "corrupt"}

// String is the name of the reason.
func (r Reason) String() string { return reasonNames[r] }

// Seen is what a table has to say about a packet.
type Seen struct {
	// Row is the row that a request belongs to, or whose request a response answers; nil if there is a Bad reason (but
	// Spoofed, Quarantined and Implausible packets may name the row that they claimed).
	Row *Row
	// Response tells responses from requests.
	Response bool
	// Class of a request.
	Class Class
	// Alone says that a New request is the only thing in flight: the requester sent nothing before it that has not been
	// answered. It means nothing for rows that are Pinned.
	Alone bool
	// Span is how many PSNs a request takes: 1, or as many as a READ has responses; 0 if that is not known, because the MTU
	// is not.
	Span int
	// Bad says why the packet was not used; Fine if it was.
	Bad Reason
}
