package linkstate

import (
	"errors"
	"fmt"
	"slices"
)

// Bounds of a topology. A message with the records of MaxSwitches fits into the smallest MTU.
const (
	MaxSwitches = 32
	MaxTrunks   = 128
)

// Trunk connects two switches, by their numbers.
type Trunk struct{ A, B int }

// other returns the far end of the trunk for switch s, and false if s is none of its ends.
func (c Trunk) other(s int) (int, bool) {
	switch s {
	case c.A:
		return c.B, true
	case c.B:
		return c.A, true
	}
	return 0, false
}

// Topology is the switches of a rack, numbered from 0, and the trunks between them.
type Topology struct {
	Switches int
	Trunks   []Trunk
}

// Validate returns an error that says what is wrong with the topology.
func (t *Topology) Validate() error {
	if t.Switches < 1 || t.Switches > MaxSwitches || len(t.Trunks) > MaxTrunks {
		return fmt.Errorf("linkstate: %d switches and %d trunks: want 1 to %d, and at most %d", t.Switches, len(t.Trunks), MaxSwitches, MaxTrunks)
	}
	for _, c := range t.Trunks {
		if min(c.A, c.B) < 0 || max(c.A, c.B) >= t.Switches || c.A == c.B {
			return errors.New("linkstate: a trunk does not connect two switches of the topology")
		}
	}
	return nil
}

// Routes says how frames leave a switch.
type Routes struct {
	// Hops has, for each switch, the trunks on the shortest paths to it, in the order of the topology;
	// none if it cannot be reached, and for the switch itself.
	Hops [][]int
	// Tree has the trunks of the switch on which frames are flooded.
	Tree []int
}

// Routes returns the routes of switch self, if up says which trunks work.
func (t *Topology) Routes(self int, up func(trunk int) bool) Routes {
	r := Routes{Hops: make([][]int, t.Switches)}
	for to := range t.Switches {
		if to == self {
			continue
		}
		far := t.distances(to, up)
		for i, c := range t.Trunks {
			if next, own := c.other(self); own && up(i) && far[next] >= 0 && far[next] < far[self] {
				r.Hops[to] = append(r.Hops[to], i)
			}
		}
	}
	for i, c := range t.Trunks {
		if _, own := c.other(self); own && t.inTree(i, up) {
			r.Tree = append(r.Tree, i)
		}
	}
	return r
}

// distances returns how many trunks are on a shortest path from each switch to switch `to`; -1: there
// is no path.
func (t *Topology) distances(to int, up func(int) bool) []int {
	far := slices.Repeat([]int{-1}, t.Switches)
	far[to] = 0
	for queue := []int{to}; len(queue) > 0; queue = queue[1:] {
		for i, c := range t.Trunks {
			if next, ok := c.other(queue[0]); ok && up(i) && far[next] < 0 {
				far[next] = far[queue[0]] + 1
				queue = append(queue, next)
			}
		}
	}
	return far
}

// inTree reports whether a trunk is in the spanning forest that takes the trunks in their order, each
// one that connects two parts.
func (t *Topology) inTree(trunk int, up func(int) bool) bool {
	part := make([]int, t.Switches)
	for s := range part {
		part[s] = s
	}
	for i, c := range t.Trunks[:trunk+1] {
		a, b := part[c.A], part[c.B]
		if !up(i) || a == b {
			if i == trunk {
				return false
			}
			continue
		}
		for s := range part {
			if part[s] == b {
				part[s] = a
			}
		}
	}
	return true
}
