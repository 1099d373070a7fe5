package conntrack

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// movedBy reports whether a copy of this request with a damaged header could move the PSNs that the
// table keeps of the flow too far. A wrong PSN ahead of the right one raises q.high, the PSN after
// the newest request: later requests then do not count as Alone in flight. A wrong length of a
// READ, or a wrong bit that makes a short SEND look like a READ, raises q.Expected: later requests
// then look like duplicates. On an unsynced flow, classify raises q.Expected at once, before the
// caller has accepted the request (Advance).
func (q *Sequence) movedBy(op wire.Opcode, psn wire.PSN) bool {
	return q.seen == noRequest || q.sync == unsynced || op == wire.RCReadRequest || wire.Diff(psn, q.high) > 0
}

// request classifies a request of a flow in the same way as its responder does.
func (t *Table) request(now clock.Time, fl *Flow, f *wire.Frame, icrc Checker) Seen {
	op, psn := f.BTH.Opcode, f.BTH.PSN
	if fl.movedBy(op, psn) && !intact(icrc) {
		t.stats.Damaged++
		return fl.refused(false, Corrupt)
	}
	s := Seen{Flow: fl, Span: 1}
	if op == wire.RCReadRequest {
		s.Span = fl.PathMTU.SpanOf(f.RETH.Length)
	}
	if fl.State == Connecting {
		fl.State.on(evUsed)
		fl.Peer.State.on(evUsed)
	}
	if s.Class = fl.classify(psn, s.Span); s.Class == New {
		s.Alone = fl.quiet() && fl.settled(now)
		if s.Span == 0 {
			fl.open = readOf{psn, f.RETH.Length}
		}
	}
	fl.reach(psn, s.Span, f.RETH.Length)
	if fl.PathMTU.MTU == 0 && op.Is(wire.OpFirst|wire.OpMiddle) && isMTU(len(f.Payload)) && intact(icrc) {
		fl.learnMTU(len(f.Payload))
	}
	if fl.learn != nil && intact(icrc) {
		fl.learn.request(f, s.Span)
	}
	return s
}

// Class says whether a request is in order, ahead or a duplicate, for a responder that has received
// every request that the switch has forwarded.
type Class uint8

// Classes of requests. Responses have none.
const (
	// Unsynced: the expected PSN of the flow is not known yet.
	Unsynced Class = iota
	// New: in order, with the expected PSN.
	New
	// Ahead: an earlier request is missing. A responder drops all requests that are ahead, and
	// answers the first of them with a sequence NAK.
	Ahead
	// Duplicate: a request with its PSN was received before.
	Duplicate
)

var classNames = [...]string{"unsynced", "new", "ahead", "duplicate"}

func (c Class) String() string { return classNames[c] }

// Reason says why the table did not use a packet. If the reason is not Fine, the program forwards
// the packet unchanged or drops it; the packet must not change the state of a flow.
type Reason uint8

const (
	// Fine: the packet was used.
	Fine Reason = iota
	// Untracked: the packet does not belong to a reliable connection.
	Untracked
	// Unknown: the packet is a response, and the table does not know which flow it answers.
	Unknown
	// Spoofed: the packet arrived at a port to which its source address does not belong.
	Spoofed
	// NoRoom: the packet belongs to a new connection, and the table is full.
	NoRoom
	// Quarantined: the connection of the packet has ended. Or another connection with the same key
	// ended a short time ago, and the connection manager has not announced a new one.
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

func (r Reason) String() string { return reasonNames[r] }

// Seen is what the table says about a packet.
type Seen struct {
	// Flow is the flow of a request, or the flow that a response answers. It is nil if Bad is not
	// Fine; but for Spoofed, Quarantined, Implausible and Corrupt it may be the flow that the
	// packet claimed.
	Flow *Flow
	// Response is true if the packet is a response, and false if it is a request.
	Response bool
	// Class is the class of a request.
	Class Class
	// Alone is true if the request is New, and all requests that the requester sent before it have
	// been answered. It is not valid for pinned flows (Flow.Pinned).
	Alone bool
	// Span is how many PSNs a request takes: as many as a READ has response packets, 1 for other
	// requests. 0 means not known, because the path MTU is not known.
	Span int
	// Bad is why the table did not use the packet; Fine: it did.
	Bad Reason
}

// refused returns the result of Packet for a packet that the program must not use.
func (fl *Flow) refused(response bool, bad Reason) Seen {
	if response {
		fl = fl.Peer
	}
	return Seen{Flow: fl, Response: response, Bad: bad}
}
