package cm

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// State is the state of a connection (IBTA 12.9.7).
type State uint8

// States. A connection is in Idle before its first and after its last message; it is then in no
// table.
const (
	Idle State = iota
	REQSent
	REPWait // an MRA asked to wait for the REP
	REPRcvd
	REQRcvd
	REPSent
	RTUWait // an MRA asked to wait for the RTU
	Established
	DREQSent
	TimeWait
	SIDRSent
	SIDRRcvd
)

var stateNames = [...]string{
	"Idle", "REQSent", "REPWait", "REPRcvd", "REQRcvd", "REPSent", "RTUWait", "Established", "DREQSent", "TimeWait", "SIDRSent", "SIDRRcvd",
}

func (s State) String() string { return stateNames[s] }

// cause is what makes a connection change its state: a message, a call of the application, or a
// timeout.
type cause uint8

const (
	onConnect cause = iota
	onAccept
	onReady
	onReject
	onDelay // the application needs more time; only tests use it
	onDisconnect
	onAbort
	onPacket // the first RC packet of the connection has arrived
	onResolve
	onAnswer
	rxREQ
	rxMRA
	rxREJ
	rxREP
	rxRTU
	rxDREQ
	rxDREP
	rxSIDRReq
	rxSIDRRep
	onRetry  // no answer has come, and retries are left
	onExpire // no retries are left, or the time-wait has ended
)

var causeNames = [...]string{
	"Connect", "Accept", "Ready", "Reject", "Delay", "Disconnect", "Abort", "first packet", "Resolve", "Answer",
	"REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP", "retry", "expiry",
}

func (c cause) String() string { return causeNames[c] }

// edge is one edge of the state diagram. sends names the message that is sent; only tests use it.
type edge struct {
	from  State
	on    cause
	to    State
	sends string
}

// edges is the state diagram (IBTA 12.9.7.1 for the initiator, IBTA 12.9.7.2 for the responder). A
// call without an edge fails with an illegalState; a message without an edge is counted and
// ignored.
var edges = [...]edge{
	// The initiator.
	{Idle, onConnect, REQSent, "REQ"},
	{REQSent, rxREP, REPRcvd, ""},
	{REQSent, rxMRA, REPWait, ""},
	{REQSent, rxREJ, Idle, ""},
	{REQSent, onRetry, REQSent, "REQ"},
	{REQSent, onExpire, Idle, "REJ timeout"},
	{REQSent, onAbort, Idle, "REJ timeout"},
	{REPWait, rxREP, REPRcvd, ""},
	{REPWait, rxMRA, REPWait, ""},
	{REPWait, rxREJ, Idle, ""},
	{REPWait, onRetry, REQSent, "REQ"},
	{REPWait, onExpire, Idle, "REJ timeout"},
	{REPWait, onAbort, Idle, "REJ timeout"},
	{REPRcvd, onReady, Established, "RTU"},
	{REPRcvd, onDelay, REPRcvd, "MRA"},
	{REPRcvd, rxREP, REPRcvd, "MRA"},
	{REPRcvd, rxREJ, Idle, ""},
	{REPRcvd, rxDREQ, TimeWait, "DREP"},
	{REPRcvd, onReject, TimeWait, "REJ"},
	{REPRcvd, onAbort, TimeWait, "REJ"},

	// The responder.
	{Idle, rxREQ, REQRcvd, ""},
	{REQRcvd, rxREQ, REQRcvd, "MRA"},
	{REQRcvd, onDelay, REQRcvd, "MRA"},
	{REQRcvd, onAccept, REPSent, "REP"},
	{REQRcvd, onReject, TimeWait, "REJ"},
	{REQRcvd, rxREJ, Idle, ""},
	{REQRcvd, onExpire, TimeWait, "REJ timeout"},
	{REQRcvd, onAbort, TimeWait, "REJ"},
	{REPSent, rxRTU, Established, ""},
	{REPSent, onPacket, Established, ""},
	{REPSent, rxREQ, REPSent, "REP"},
	{REPSent, rxMRA, RTUWait, ""},
	{REPSent, rxREJ, TimeWait, ""},
	{REPSent, rxDREQ, TimeWait, "DREP"},
	{REPSent, onRetry, REPSent, "REP"},
	{REPSent, onExpire, TimeWait, "REJ timeout"},
	{REPSent, onAbort, TimeWait, "REJ timeout"},
	{RTUWait, rxRTU, Established, ""},
	{RTUWait, onPacket, Established, ""},
	{RTUWait, rxREQ, RTUWait, "REP"},
	{RTUWait, rxMRA, RTUWait, ""},
	{RTUWait, rxREJ, TimeWait, ""},
	{RTUWait, rxDREQ, TimeWait, "DREP"},
	{RTUWait, onRetry, REPSent, "REP"},
	{RTUWait, onExpire, TimeWait, "REJ timeout"},
	{RTUWait, onAbort, TimeWait, "REJ timeout"},

	// Both sides.
	{Established, rxREP, Established, "RTU"},
	{Established, rxRTU, Established, ""},
	{Established, onPacket, Established, ""},
	{Established, rxREJ, TimeWait, ""},
	{Established, rxDREQ, TimeWait, "DREP"},
	{Established, onDisconnect, DREQSent, "DREQ"},
	{Established, onAbort, DREQSent, "DREQ"},
	{DREQSent, rxDREP, TimeWait, ""},
	{DREQSent, rxDREQ, TimeWait, "DREP"},
	{DREQSent, onRetry, DREQSent, "DREQ"},
	{DREQSent, onExpire, TimeWait, ""},
	{DREQSent, onAbort, DREQSent, ""},
	{TimeWait, rxREQ, TimeWait, "REJ"},
	{TimeWait, rxREP, TimeWait, "REJ"},
	{TimeWait, rxRTU, TimeWait, "REJ"},
	{TimeWait, rxDREQ, TimeWait, "DREP"},
	{TimeWait, rxSIDRReq, TimeWait, "SIDR_REP"},
	{TimeWait, onAbort, TimeWait, ""},
	{TimeWait, onExpire, Idle, ""},

	// Resolution of a datagram service (IBTA 12.11).
	{Idle, onResolve, SIDRSent, "SIDR_REQ"},
	{SIDRSent, rxSIDRRep, Idle, ""},
	{SIDRSent, onRetry, SIDRSent, "SIDR_REQ"},
	{SIDRSent, onExpire, Idle, ""},
	{SIDRSent, onAbort, Idle, ""},
	{Idle, rxSIDRReq, SIDRRcvd, ""},
	{SIDRRcvd, rxSIDRReq, SIDRRcvd, ""},
	{SIDRRcvd, onAnswer, TimeWait, "SIDR_REP"},
	{SIDRRcvd, onExpire, Idle, ""},
	{SIDRRcvd, onAbort, TimeWait, "SIDR_REP"},
}

// next returns the state that follows state `from` for a cause; false if the state diagram (edges)
// has no such transition.
func next(from State, on cause) (State, bool) {
	for i := range edges {
		if e := &edges[i]; e.from == from && e.on == on {
			return e.to, true
		}
	}
	return from, false
}

// illegalState is a call that the connection's state does not allow. It wraps verbs.ErrState.
type illegalState struct {
	Op    string // the method that was called
	State State
	// LegalIn are the states in which Op is allowed.
	LegalIn []State
}

func stateError(from State, on cause) *illegalState {
	e := &illegalState{Op: on.String(), State: from}
	for _, t := range edges {
		if t.on == on {
			e.LegalIn = append(e.LegalIn, t.from)
		}
	}
	return e
}

func (e *illegalState) Error() string {
	return fmt.Sprintf("connection: %s %v: the state is %v, legal in %v", e.Op, verbs.ErrState, e.State, e.LegalIn)
}

func (e *illegalState) Unwrap() error { return verbs.ErrState }
