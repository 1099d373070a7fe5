package conntrack

import (
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/transitions"
)

// State is the state of a flow: whether the table knows both flows of the connection, and whether
// the connection is in use or has ended.
type State uint8

// States of a flow. unused is the state of a Flow that is not in use.
const (
	unused State = iota
	// Learning: the table has seen packets, but does not know for sure which flow is the peer.
	Learning
	// Connecting: REQ and REP of the connection manager have named both queue pairs. The table has
	// seen neither an RTU nor a request of the connection.
	Connecting
	// Open: the table knows both flows of the connection, and the connection is in use.
	Open
	// Closing: the table has seen a DREQ, or a NAK that ends the connection. More packets may
	// arrive.
	Closing
	// Closed: the connection has ended. Its key is in quarantine: packets with this key belong to
	// the ended connection.
	Closed
)

const states = int(Closed) + 1

var stateNames = [...]string{"unused", "learning", "connecting", "open", "closing", "closed"}

func (s State) String() string { return stateNames[s] }

func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s *State) UnmarshalText(b []byte) error {
	i := slices.Index(stateNames[:], string(b))
	if i <= 0 {
		return fmt.Errorf("%.20q is no state of a flow", b)
	}
	*s = State(i)
	return nil
}

type event uint8

const (
	evPacket     event = iota // the first packet of an unknown connection
	evAnnounced               // a REP, after its REQ, has named the second queue pair
	evPaired                  // the packets of the flow have shown which flow is its peer
	evUsed                    // an RTU or a request of an announced connection
	evDisconnect              // a DREQ
	evFatal                   // a NAK that ends the connection
	evEnded                   // a DREP, or a long silence (age)

	events
)

// stateEdges are the transitions of a flow. An event without an edge leaves the state as it is.
// testdata/flow.dot is their diagram.
var stateEdges = []transitions.Edge[State, event]{
	{unused, evPacket, Learning},
	{unused, evAnnounced, Connecting},
	{Learning, evPaired, Open},
	{Connecting, evUsed, Open},
	{Connecting, evDisconnect, Closing},
	{Open, evDisconnect, Closing},
	{Connecting, evFatal, Closing},
	{Open, evFatal, Closing},
	{Learning, evEnded, Closed},
	{Connecting, evEnded, Closed},
	{Open, evEnded, Closed},
	{Closing, evEnded, Closed},
}

var nextState = func() (t [states][events]State) {
	transitions.Fill(State(states), events, stateEdges, func(from State, on event) *State { return &t[from][on] })
	return t
}()

func (s *State) on(e event) { *s = nextState[*s][e] }
