package meta

import "github.com/rdmalab/rdmalab/clover/layout"

// fifo is a queue of locations: what was retired first is used again first, so that a node rests as long as possible.
type fifo struct {
	list []layout.Location
	head int
}

func (q *fifo) len() int { return len(q.list) - q.head }

func (q *fifo) push(l layout.Location) {
	if q.head > 0 && q.head >= len(q.list)/2 && len(q.list) == cap(q.list) {
		q.list = q.list[:copy(q.list, q.list[q.head:])]
		q.head = 0
	}
	q.list = append(q.list, l)
}

func (q *fifo) pop() (layout.Location, bool) {
	if q.len() == 0 {
		return layout.Location{}, false
	}
	l := q.list[q.head]
	q.head++
	return l, true
}

// remove takes out what match says.
func (q *fifo) remove(match func(layout.Location) bool) {
	kept := q.list[:0]
	for _, l := range q.list[q.head:] {
		if !match(l) {
			kept = append(kept, l)
		}
	}
	q.list, q.head = kept, 0
}

// nodes says where the nodes are that are not linked. See the package comment.
type nodes struct {
	free [layout.Classes]fifo
	held map[layout.Handle]held
	worn []worn
}

// held is a node that was given out.
type held struct {
	client  uint32
	version layout.Version
	// reported says that the client has linked it, as it says.
	reported bool
	// void says that its memory was lost while somebody could still append it: a chain that leads to it is lost there.
	void bool
}

// worn is a node whose versions are used up.
type worn struct {
	handle layout.Handle
	epoch  uint32
}

// classOf is the class of a node.
func (s *Server) classOf(h layout.Handle) layout.Class {
	p, _ := s.space.Place(h)
	c, _ := layout.ClassOf(p.Len)
	return c
}

// retire takes back a node that the chain has passed, or that was never linked: its next life may begin.
func (s *Server) retire(l layout.Location) {
	delete(s.walk.successors, l)
	next, ok := l.Version.Next()
	if !ok {
		s.nodes.worn = append(s.nodes.worn, worn{l.Handle, s.epoch})
		return
	}
	s.nodes.free[s.classOf(l.Handle)].push(layout.Location{Handle: l.Handle, Version: next})
}

// give takes up to n nodes of a class for a client.
func (s *Server) give(to uint32, c layout.Class, n int, out []layout.Location) []layout.Location {
	for range n {
		l, ok := s.nodes.free[c].pop()
		if !ok {
			break
		}
		s.nodes.held[l.Handle] = held{client: to, version: l.Version}
		out = append(out, l)
	}
	return out
}

// heldAs reports whether a client holds a node in this very life.
func (s *Server) heldAs(to uint32, l layout.Location) bool {
	h, ok := s.nodes.held[l.Handle]
	return ok && h.client == to && h.version == l.Version
}

// linked notes that a node has been seen in a chain.
func (s *Server) linked(l layout.Location) { delete(s.nodes.held, l.Handle) }

// turn makes a new epoch when many nodes wait for one, and frees those whose epoch every client has left.
func (s *Server) turn() {
	if len(s.nodes.worn) == 0 {
		return
	}
	oldest := s.epoch
	for _, c := range s.clients {
		oldest = min(oldest, c.epoch)
	}
	kept := s.nodes.worn[:0]
	waiting := false
	for _, w := range s.nodes.worn {
		if w.epoch < oldest {
			s.nodes.free[s.classOf(w.handle)].push(layout.Location{Handle: w.handle, Version: 1})
			continue
		}
		waiting = waiting || w.epoch == s.epoch
		kept = append(kept, w)
	}
	s.nodes.worn = kept
	if waiting && oldest == s.epoch {
		s.epoch++
	}
}
