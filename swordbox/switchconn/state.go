package switchconn

import (
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/transitions"
)

// State is the state of a wanted connection.
type State uint8

const (
	// Waiting: there is no connection. The next attempt begins at Info.Next.
	Waiting State = iota
	// Dialing: the switch has sent a REQ to the server.
	Dialing
	// Up: the connection can be used.
	Up
	// Ending: the switch has sent a DREQ to the server. When the server has confirmed it, or has
	// not answered for maxTransit, the state is Waiting again.
	Ending
)

const states = int(Ending) + 1

var stateNames = [...]string{"waiting", "dialing", "up", "ending"}

func (s State) String() string { return stateNames[s] }

func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s *State) UnmarshalText(b []byte) error {
	i := slices.Index(stateNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("%.20q is no state of a connection", b)
	}
	*s = State(i)
	return nil
}

type change uint8

const (
	chDial   change = iota // an attempt begins
	chUp                   // the server has answered, or the connection was adopted
	chFailed               // the attempt has failed, or the server has ended the connection
	chEnd                  // the switch ends the connection
	// an adopted connection has failed or is not wanted; the switch neither ends it nor makes it
	// again
	chRemoved
	chOver // the server has confirmed the end, or no packet can be in flight any more

	changes
)

// edges are the transitions of a connection. A change without an edge leaves the state as it is.
// testdata/link.dot is their diagram.
var edges = []transitions.Edge[State, change]{
	{Waiting, chDial, Dialing},
	{Waiting, chUp, Up}, // adopted
	{Dialing, chUp, Up},
	{Dialing, chFailed, Waiting},
	{Dialing, chEnd, Waiting},
	{Up, chFailed, Waiting},
	{Up, chEnd, Ending},
	{Up, chRemoved, Waiting},
	{Ending, chOver, Waiting},
}

var next = func() (t [states][changes]State) {
	transitions.Fill(State(states), changes, edges, func(from State, on change) *State { return &t[from][on] })
	return t
}()

func (s *State) on(c change) { *s = next[*s][c] }
