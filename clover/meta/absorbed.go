package meta

import "github.com/rdmalab/rdmalab/clover/layout"

// A node that its client has reported need not be in the chain. A switch that steers lets an append
// be absorbed: the node was overwritten at once, and its header names the node that has overwritten
// it. The server frees such a node with its next version, like one that the chain has passed.

// freeAbsorbed frees those reported nodes of an entry that are not in the chain. A reported node is
// not if the chain has passed its successor, or if ended is true: the chain was followed to its end
// after the report.
func freeAbsorbed(s *chains, e *entry, ended bool) {
	left := e.reported[:0]
	for _, l := range e.reported {
		n, ok := s.nodes.held[l.Handle]
		if !ok || n.version != l.Version || !n.reported || n.void {
			continue // the chain has reached the node
		}
		if !ended && !leftOut(s, l) {
			left = append(left, l)
			continue
		}
		e.ahead = max(0, e.ahead-1)
		delete(s.nodes.held, l.Handle)
		s.retire(l)
	}
	e.reported = left
}

// leftOut reports whether the chain has passed the successor of a reported node, but not the node.
func leftOut(s *chains, l layout.Location) bool {
	next, ok := s.walk.successors[l]
	if !ok {
		return false
	}
	n, held := s.nodes.held[next.Handle]
	return !held || n.version != next.Version
}
