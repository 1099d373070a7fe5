package ucma

import "github.com/rdmalab/rdmalab/swordbox/transitions"

// State is the state of an identifier.
type State uint8

// States.
const (
	Fresh State = iota
	// Bound: it has an address, which may be that of all, and a port.
	Bound
	// Resolved: it knows the address of its peer, and how to reach it; Routed: the program has asked
	// for the route, too.
	Resolved
	Routed
	Listening
	// Connecting: a request or a question was sent. Answered: the peer has accepted, and the program
	// brings its queue pair up.
	Connecting
	Answered
	// Requested: made for a peer's request. Accepted: it was answered.
	Requested
	Accepted
	Established
	Disconnecting
	Ended
	states
)

var stateNames = [states]string{
	"Fresh", "Bound", "Resolved", "Routed", "Listening", "Connecting", "Answered", "Requested", "Accepted", "Established",
	"Disconnecting", "Ended",
}

// String is the name of the state.
func (s State) String() string { return stateNames[s] }

// cause is a reason for an identifier to change its state: a command, or what the NIC reports.
type cause uint8

const (
	onBind cause = iota
	onResolve
	onRoute
	onListen
	onConnect
	onReply
	onReady
	onRequest
	onAccept
	onEstablished
	onDisconnect
	onEnd
	causes
)

var causeNames = [causes]string{
	"bind", "resolve address", "resolve route", "listen", "connect", "reply", "ready", "request", "accept", "established", "disconnect", "end",
}

// String is the name of the command, or of the report.
func (c cause) String() string { return causeNames[c] }

// edges are the transitions of an identifier. A command without an edge is refused with EINVAL, as
// the kernel refuses it; a report without an edge tells the program nothing.
var edges = []transitions.Edge[State, cause]{
	{Fresh, onBind, Bound},
	{Fresh, onResolve, Resolved},
	{Fresh, onRequest, Requested},
	{Bound, onResolve, Resolved},
	{Bound, onListen, Listening},
	{Resolved, onRoute, Routed},
	{Routed, onConnect, Connecting},
	{Connecting, onReply, Answered},
	{Connecting, onEstablished, Established}, // of a datagram service
	{Connecting, onEnd, Ended},
	{Answered, onReady, Established},
	{Answered, onEnd, Ended},
	{Requested, onAccept, Accepted},
	{Requested, onEnd, Ended},
	{Accepted, onEstablished, Established},
	{Accepted, onEnd, Ended},
	{Established, onDisconnect, Disconnecting},
	{Established, onEnd, Ended},
	{Disconnecting, onEnd, Ended},
}

var table = func() (t [states][causes]State) {
	transitions.Fill(states, causes, edges, func(s State, c cause) *State { return &t[s][c] })
	return t
}()

// may reports whether an identifier has an edge.
func (x *id) may(on cause) bool { return table[x.state][on] != x.state }

// step follows an edge if there is one.
func (x *id) step(on cause) bool {
	ok := x.may(on)
	x.state = table[x.state][on]
	return ok
}
