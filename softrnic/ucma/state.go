package ucma

import "github.com/rdmalab/rdmalab/transitions"

// State is the state of an identifier (rdma_cm_id).
type State uint8

// States of an identifier.
const (
	Fresh State = iota
	// Bound: the identifier has a port and an address, which may be the unspecified one.
	Bound
	// Resolved: the address of the peer and the route to it are known. Routed: the program has also
	// requested the route.
	Resolved
	Routed
	Listening
	// Connecting: a connection request or SIDR request was sent. Answered: the peer has accepted, and
	// the program moves its queue pair to RTS.
	Connecting
	Answered
	// Requested: the identifier was made for a peer's request. Accepted: the program has accepted this
	// request.
	Requested
	Accepted
	Established
	Disconnecting
	// Parted: the peer has ended the connection, and the program has not answered that by the command
	// Disconnect. Waiting: the connection has ended for both sides, and is in time-wait.
	Parted
	Waiting
	Ended
	states
)

var stateNames = [states]string{
	"Fresh", "Bound", "Resolved", "Routed", "Listening", "Connecting", "Answered", "Requested", "Accepted", "Established",
	"Disconnecting", "Parted", "Waiting", "Ended",
}

func (s State) String() string { return stateNames[s] }

// cause is what makes an identifier change its state: a command, or a report of the NIC.
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
	onPart // the connection has ended after it was accepted
	onLeave
	onEnd
	causes
)

var causeNames = [causes]string{
	"bind", "resolve address", "resolve route", "listen", "connect", "reply", "ready", "request", "accept", "established", "disconnect", "part", "leave", "end",
}

func (c cause) String() string { return causeNames[c] }

// edges are the transitions of an identifier. A command without an edge fails with EINVAL, as in
// the kernel; a report without an edge is ignored.
var edges = []transitions.Edge[State, cause]{
	{Fresh, onBind, Bound},
	{Fresh, onResolve, Resolved},
	{Fresh, onRequest, Requested},
	{Bound, onResolve, Resolved},
	{Bound, onListen, Listening},
	{Resolved, onRoute, Routed},
	{Routed, onConnect, Connecting},
	{Connecting, onReply, Answered},
	{Connecting, onEstablished, Established}, // only for a datagram service
	{Connecting, onEnd, Ended},
	{Answered, onReady, Established},
	{Answered, onPart, Parted},
	{Answered, onEnd, Ended},
	{Requested, onAccept, Accepted},
	{Requested, onEnd, Ended},
	{Accepted, onEstablished, Established},
	{Accepted, onPart, Parted},
	{Accepted, onEnd, Ended},
	{Established, onDisconnect, Disconnecting},
	{Established, onPart, Parted},
	{Established, onEnd, Ended},
	{Disconnecting, onPart, Waiting},
	{Disconnecting, onEnd, Ended},
	{Parted, onDisconnect, Waiting},
	{Waiting, onLeave, Ended},
}

var table = func() (t [states][causes]State) {
	transitions.Fill(states, causes, edges, func(s State, c cause) *State { return &t[s][c] })
	return t
}()

// may reports whether the identifier has a transition for the cause.
func (x *id) may(on cause) bool { return table[x.state][on] != x.state }

// step moves the identifier to its next state for a cause. It returns false if the state diagram
// (edges) has no such transition.
func (x *id) step(on cause) bool {
	ok := x.may(on)
	x.state = table[x.state][on]
	return ok
}
