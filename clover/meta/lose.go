package meta

import (
	"cmp"
	"slices"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// lose works on the loss of a server's memory: keys whose newest node was there are lost, and all its nodes begin anew.
//
// A client that has not heard of the loss may have written a node there, and may still append it to a node on another server: its
// lease runs on, and its request may be under way. What comes of that is a chain that leads into the lost memory. So nobody gets a node of
// the server until the leases of all who held some have ended, and their packets are gone; until then the orphan holds them, and a
// chain that leads to one of them is lost there. Then all chains are looked at once more, and the nodes are free (recoverOrphans).
//
// What can fail comes first, and changes nothing that a second attempt would not change again.
func (s *Server) lose(i int) error {
	if err := s.openWays(i, s.deadline()); err != nil {
		return err
	}
	if err := s.formatServer(i); err != nil {
		return err
	}
	s.stats.Losses++
	s.memory[i].blank, s.memory[i].down = false, false
	for _, cl := range s.clients {
		cl.stale = true
	}
	s.forgetHints()
	s.voidServer(i)
	for _, e := range s.keys {
		kept := e.passed[:0]
		for _, l := range e.passed {
			if !s.onServer(l, i) {
				kept = append(kept, l)
			}
		}
		if e.passed = kept; s.onServer(e.at, i) {
			e.at = layout.Location{}
			e.lose()
		}
	}
	s.rewriteDirectory(i)
	s.followAll()
	return nil
}

// voidServer gives all nodes of a server to the orphan, for as long as somebody may append them.
func (s *Server) voidServer(i int) {
	on := func(l layout.Location) bool { return s.onServer(l, i) }
	for c := range s.nodes.free {
		s.nodes.free[c].remove(on)
	}
	kept := s.nodes.worn[:0]
	for _, w := range s.nodes.worn {
		if !on(layout.Location{Handle: w.handle}) {
			kept = append(kept, w)
		}
	}
	s.nodes.worn = kept
	first, n := s.space.First(i, 0), s.space.Entries.Total()
	for h := first; h < first+layout.Handle(n); h++ {
		s.nodes.held[h] = held{client: orphan, void: true}
	}
	s.void, s.orphansAt = true, s.rt.Now().Add(s.cfg.Lease+s.cfg.Grace)
}

// rewriteDirectory writes the records of a server that was formatted.
func (s *Server) rewriteDirectory(i int) {
	var batch []*entry
	for _, e := range s.sorted() {
		if p, _ := s.space.Record(int(e.slot)); p.Server != i {
			continue
		}
		e.recorded = false
		if batch = append(batch, e); len(batch) == lanes {
			s.record(batch)
			batch = batch[:0]
		}
	}
	s.record(batch)
	for _, e := range s.sorted() {
		s.note(e) // what was not written is tried again
	}
}

// recoverOrphans frees what no client can have any more.
func (s *Server) recoverOrphans(now clock.Time) {
	if now < s.orphansAt {
		return
	}
	if s.followAll(); !s.allWhole() {
		s.orphansAt = now.Add(downPause)
		return
	}
	if s.void && s.findStrays() != nil {
		s.orphansAt = s.rt.Now().Add(downPause)
		return
	}
	s.void, s.orphansAt = false, clock.Never
	list, per := s.heldBy(orphan), s.space.Entries.Total()
	slices.SortStableFunc(list, func(a, b layout.Handle) int { return cmp.Compare((int(a)-1)%per, (int(b)-1)%per) }) // by turns, as freeAll does
	for _, h := range list {
		v := s.nodes.held[h].version
		delete(s.nodes.held, h)
		// The client that had it may have been told of the version after that in memory, and have written nothing.
		next, ok := v.Next()
		if !ok {
			next = v
		}
		s.retire(layout.Location{Handle: h, Version: next})
	}
}
