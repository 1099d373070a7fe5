package trunk

import (
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/transitions"
)

// State is the state of an end.
type State uint8

const (
	// Off: the trunk was cut at this end, which neither sends nor receives.
	Off State = iota
	// Calling: the peer is silent. The end sends hellos, and probes if it has a key.
	Calling
	// Proving: the ends have agreed on a key with which nothing has come yet.
	Proving
	// Up: the peer is heard.
	Up
)

const states = int(Up) + 1

var stateNames = [...]string{"off", "calling", "proving", "up"}

func (s State) String() string { return stateNames[s] }

func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s *State) UnmarshalText(b []byte) error {
	i := slices.Index(stateNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("%.20q is no state of a trunk", b)
	}
	*s = State(i)
	return nil
}

// change is what changes a state.
type change uint8

const (
	chOn     change = iota // the trunk is no longer cut
	chOff                  // the trunk is cut
	chAgreed               // a hello has completed a handshake
	chHeard                // a datagram has come that was sealed with a key of the end
	chSilent               // nothing such has come for Silence
	changes
)

func (c change) String() string { return [...]string{"on", "off", "agreed", "heard", "silent"}[c] }

// edges are the transitions of an end. A change without an edge leaves the state as it is: an end that is
// up and agrees on another key stays up. testdata/end.dot is their diagram.
var edges = []transitions.Edge[State, change]{
	{Off, chOn, Calling},
	{Calling, chOff, Off},
	{Calling, chAgreed, Proving},
	{Calling, chHeard, Up}, // the network has healed
	{Proving, chOff, Off},
	{Proving, chHeard, Up},
	{Proving, chSilent, Calling},
	{Up, chOff, Off},
	{Up, chSilent, Calling},
}

var next = func() (t [states][changes]State) {
	transitions.Fill(State(states), changes, edges, func(from State, on change) *State { return &t[from][on] })
	return t
}()
