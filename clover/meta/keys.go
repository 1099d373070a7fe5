package meta

import (
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
)

// query tells where a key is, or that a node of the client's has been met in a chain, if it asks for one.
func (s *Server) query(cl *client, r *rpc.Request, a *rpc.Answer) {
	e := s.keys[r.Key]
	if e != nil && s.void { // it may lead into lost memory since: its client would read on to there, and ask again
		s.follow([]*entry{e}, -1)
		e = s.keys[r.Key]
	}
	switch {
	case !r.At.IsZero() && !s.heldAs(cl.id, r.At):
		a.Status = rpc.Done // a node leaves the hands of its client only into a chain
	case e == nil:
		a.Status = rpc.NotFound
	case e.lost:
		a.Status = rpc.Lost
	default:
		a.N, a.Slot = 1, e.slot
		a.Locations[0] = e.at
	}
}

// openKey makes a key known. A request that comes again is answered by what became of it the first time.
func (s *Server) openKey(cl *client, r *rpc.Request, a *rpc.Answer) {
	e := s.keys[r.Key]
	switch {
	case e != nil && e.opened == r.At:
		a.Slot = e.slot
		return
	case !s.heldAs(cl.id, r.At):
		a.Status = rpc.Done // a node leaves the hands of its client only into a chain
		return
	case e != nil && !s.clear(e):
		a.Status = rpc.Exists
		if e.dead || !e.ended {
			a.Status = rpc.Busy // a memory server does not answer: it cannot be said, or written down, whether the key has ended
		}
		return
	case s.gone(r.At):
		a.Status = rpc.Busy // until the loss has been worked on: the client has no node by then
		return
	case len(s.slots) == 0 && s.keys[r.Key] == nil:
		a.Status = rpc.Full
		return
	}
	s.open(r, a)
}

// gone reports whether a node was in memory that is known to be lost, perhaps since this very request. Its client does not know
// that yet. A key that was opened with it would be lost at once: a second time, if its former life was found lost before.
func (s *Server) gone(l layout.Location) bool {
	p, ok := s.space.Place(l.Handle)
	return !ok || s.memory[p.Server].blank
}

// clear looks whether a key has ended or was lost; one that has ended is out of the table then.
func (s *Server) clear(e *entry) bool {
	s.follow([]*entry{e}, -1)
	return e.lost || s.keys[e.key] != e
}

// open writes a fresh key into the directory before anybody is told of it, and the shortcut behind that: clients that knew an earlier
// key of the slot read it. What was lost is lost until then; it keeps its slot, so that the directory never says two things of a key.
func (s *Server) open(r *rpc.Request, a *rpc.Answer) {
	e := &entry{key: r.Key, at: r.At, opened: r.At}
	old := s.keys[r.Key]
	if old != nil {
		e.slot = old.slot
	} else {
		e.slot = s.slots[len(s.slots)-1]
	}
	if s.record([]*entry{e}); !e.recorded {
		a.Status = rpc.Busy
		return
	}
	if old != nil {
		s.strip(old)
	} else {
		s.slots = s.slots[:len(s.slots)-1]
	}
	s.linked(r.At)
	s.keys[r.Key] = e
	a.Slot = e.slot
	s.writeShortcut(e)
}

// writeShortcut lets the shortcut of a fresh key name its first node. One that is not written only lags.
func (s *Server) writeShortcut(e *entry) {
	p, ok := s.space.Shortcut(int(e.slot))
	if !ok || s.reach(p.Server) != nil || s.fab.MR().Store64(wordAt, uint64(e.at.Word())) != nil {
		return
	}
	o := &s.walk.ops[0]
	s.fab.Write(o, s.memory[p.Server].target(0, p.Offset), wordAt, layout.ShortcutLen)
	_ = s.fab.Do(s.deadline(), o) // as above
}

// strip takes back what is known of the chain of a lost key, when the directory does not name it any more. What is in lost memory is
// taken back with that (lose).
func (s *Server) strip(e *entry) {
	for _, l := range append(e.passed, e.at) {
		if !l.IsZero() && !s.gone(l) {
			s.retire(l)
		}
	}
	e.passed, e.at = nil, layout.Location{}
}
