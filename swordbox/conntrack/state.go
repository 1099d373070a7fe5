package conntrack

import (
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/swordbox/transitions"
)

// State is where a flow is between its first packet and its end.
type State uint8

// States of a flow. unused is that of a Flow that is not in use.
const (
	unused State = iota
	// Learning: packets were seen; the peer of the flow is not known for sure.
	Learning
	// Connecting: the connection manager's REP named both queue pairs; neither RTU nor data were
	// seen.
	Connecting
	// Open: both directions are known.
	Open
	// Closing: a DREQ, or a NAK that ends the connection, was seen. Packets may still arrive.
	Closing
	// Closed: the connection has ended. Its key is in quarantine: packets that still arrive belong
	// to the ended one.
	Closed
)

// states is the number of states.
const states = int(Closed) + 1

var stateNames = [...]string{"unused", "learning", "connecting", "open", "closing", "closed"}

// String is the name of the state.
func (s State) String() string { return stateNames[s] }

// MarshalText is String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the names that String returns.
func (s *State) UnmarshalText(b []byte) error {
	i := slices.Index(stateNames[:], string(b))
	if i <= 0 {
		return fmt.Errorf("%.20q is no state of a flow", b)
	}
	*s = State(i)
	return nil
}

// event is what changes the state of a flow.
type event uint8

const (
	evPacket     event = iota // the first packet of an unknown connection
	evAnnounced               // a REP named both queue pairs
	evPaired                  // the packets of the flow have shown which flow is its peer
	evUsed                    // an RTU or data of an announced connection
	evDisconnect              // a DREQ
	evFatal                   // a NAK that ends the connection
	evEnded                   // a DREP, a silence after Closing, or the host is gone

	events
)

var eventNames = [...]string{
	"packet", "announced", "paired", "used", "DREQ", "fatal NAK", "ended",
}

// String is the name of the event.
func (e event) String() string { return eventNames[e] }

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

// nextState is stateEdges by state and event.
var nextState = func() (t [states][events]State) {
	transitions.Fill(State(states), events, stateEdges, func(from State, on event) *State { return &t[from][on] })
	return t
}()

// on follows the edge of an event.
func (s *State) on(e event) { *s = nextState[*s][e] }
