package meta

import "github.com/rdmalab/rdmalab/clover/layout"

// A node that a client has reported need not be in the chain. A switch that steers may let a
// waiting append be absorbed: a later append overwrites the node at once, and the node's header
// names the node of that append. The metadata server frees an absorbed node in the same way as a
// superseded node of the chain.

// freeAbsorbed frees the reported nodes of the key entry e that are not in the chain. The server
// knows in two cases that a node is not in the chain: it has come to the node's successor in the
// chain without meeting the node before, or `ended` is true. `ended` means that the server has
// followed the chain to its end since the report.
func freeAbsorbed(s *chains, e *entry, ended bool) {
	left := e.reported[:0]
	for _, l := range e.reported {
		n, ok := s.nodes.held[l.Handle]
		if !ok || n.version != l.Version || !n.reported || n.void {
			continue // the server has met the node in the chain, or its memory was lost
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

// leftOut reports whether the server has met the successor of the reported node l in the chain. If
// it has, and has not met l, l is not in the chain.
func leftOut(s *chains, l layout.Location) bool {
	next, ok := s.walk.successors[l]
	if !ok {
		return false
	}
	n, held := s.nodes.held[next.Handle]
	return !held || n.version != next.Version
}
