package meta

import (
	"cmp"
	"slices"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// lose handles the loss of a server's memory: keys whose newest node was there are lost, and all
// nodes of the server begin again with version 1.
//
// A client that has not heard of the loss may have written a node there, and may still append it to
// a node on another server: its lease is valid, and its request may be in flight. The result is a
// chain that leads into the lost memory. So the metadata server gives out no node of that memory
// server until all memory servers have ended the connections of all clients that were there before.
// Until then the orphan holds the nodes, and a chain that leads to one of them is lost there. Then
// recoverOrphans follows all chains once more and frees the nodes.
//
// The steps that can fail come first; a second attempt repeats them without harm.
func (s *Server) lose(i int) error {
	if err := s.openWays(i, s.deadline()); err != nil {
		return err
	}
	// Shortcuts on other servers may name nodes on this one, whose versions begin again.
	if !s.mayTurn() {
		return errDown
	}
	s.epoch++
	s.turnedAt = s.rt.Now()
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
	s.orphansAfter = s.fenceTo(s.nextID)
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
		if p, _ := s.space.Record(int(e.slot)); p.Server == i {
			e.recorded = true
		}
		if p, ok := s.space.Mirror(int(e.slot)); ok && p.Server == i {
			e.mirrored = true
		}
	}
	for _, e := range s.sorted() {
		s.note(e) // catchUp writes the records of lost keys that are on other servers
	}
	s.followAll()
	return nil
}

// voidServer gives all nodes of a server to the orphan, until no client can append them any more.
func (s *pool) voidServer(i int) {
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
	s.segments.resting = slices.DeleteFunc(s.segments.resting, func(r resting) bool { return r.server == i })
	_ = s.runs(i, func(_ layout.Class, first layout.Handle, n int) error {
		for h := first; h < first+layout.Handle(n); h++ {
			s.nodes.held[h] = held{client: orphan, void: true}
		}
		return nil
	})
	s.orphans, s.void = true, true
}

// recoverOrphans frees the orphan's nodes once no client can use them any more.
func (s *Server) recoverOrphans(now clock.Time) {
	if !s.orphans || now < s.orphansAt || s.orphansAfter != nil && !s.fences.isOver(s.orphansAfter) {
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
	s.orphans, s.void, s.orphansAfter = false, false, nil
	list, per := s.heldBy(orphan), s.space.Entries.Total()
	// in turn from all servers, as freeAll orders them
	slices.SortStableFunc(list, func(a, b layout.Handle) int { return cmp.Compare((int(a)-1)%per, (int(b)-1)%per) })
	// A client may have been given the node with its next version, or with the version front, and
	// have written nothing into it.
	spared := func(h layout.Handle) layout.Version {
		v := s.nodes.held[h].version
		if next, ok := v.Next(); ok {
			return next
		}
		return v
	}
	for _, h := range list {
		if next, ok := spared(h).Next(); ok {
			s.nodes.free[s.classOf(h)].pace(next)
		}
	}
	for _, h := range list {
		l := layout.Location{Handle: h, Version: spared(h)}
		delete(s.nodes.held, h)
		s.retire(l)
	}
}
