package meta

import (
	"cmp"
	"errors"
	"slices"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
)

// lose is called when the memory of server i was lost. Keys whose newest known node was there are
// lost, and the versions of all nodes of the server begin again.
//
// A client that has not learnt of the loss may have written a node there, and may still append it
// to a node on another server: its lease is valid, and its request may be in flight. Then a chain
// leads into the lost memory. Therefore the metadata server gives out no node of server i until all
// memory servers have ended the connections of all clients that existed at the loss. Until then the
// orphan, a client number that no client has, holds the nodes, and a chain that leads to one of
// them is lost from there on. After that, recoverOrphans follows all chains once more and frees the
// nodes.
//
// The steps that can fail come first. Repeating them after a failure does no harm.
func (s *Server) lose(i int) error {
	if err := s.mem.openWays(i, s.mem.deadline()); err != nil {
		return err
	}
	if err := s.mayFormat(i); err != nil {
		return err
	}
	// Shortcuts on other servers may name nodes on this server, whose versions begin again. So
	// formatting needs a new epoch, and the next epoch must be allowed to begin (mayTurn).
	if !s.pool.mayTurn() {
		return errDown
	}
	s.pool.epoch++
	s.pool.turnedAt = s.mem.rt.Now()
	if err := s.members.formatServer(i); err != nil {
		return err
	}
	s.mem.stats.Losses++
	s.mem.memory[i].blank, s.mem.memory[i].down = false, false
	for _, cl := range s.pool.clients {
		cl.stale = true
	}
	s.pool.voidServer(i)
	s.pool.orphansAfter = s.pool.fenceTo(s.pool.nextID)
	s.chains.forsake(i)
	for _, e := range s.chains.keys {
		if p, _ := s.mem.space.Record(int(e.slot)); p.Server == i {
			e.recorded = true
		}
		if p, ok := s.mem.space.Mirror(int(e.slot)); ok && p.Server == i {
			e.mirrored = true
		}
	}
	for _, e := range s.chains.sorted() {
		s.chains.note(e) // catchUp writes the records of lost keys on other servers
	}
	s.chains.followAll()
	return nil
}

// mayFormat returns an error if another metadata server has formatted server i since this one found
// its memory lost. First it makes the memory service fence all numbers up to nextID, because a
// service that was restarted has forgotten which numbers were fenced. After that an earlier
// metadata server cannot format the memory any more. If this metadata server itself was deposed,
// the service of another memory server or the superblock shows it.
func (s *Server) mayFormat(i int) error {
	if err := memservice.FenceTo(s.mem.cfg.Context, s.mem.cfg.Manager, s.mem.cfg.Servers[i], s.pool.nextID, s.mem.deadline()); err != nil {
		return err
	}
	_, err := s.mem.superblock(i)
	if errors.Is(err, layout.ErrSuperblock) || errors.Is(err, layout.ErrVersion) {
		return nil // the memory is lost, and no other metadata server has formatted it
	}
	return err
}

// forsake removes the nodes of server i from all chains. If the newest known node of a key is one
// of them, the key is lost.
func (s *chains) forsake(i int) {
	for _, e := range s.keys {
		e.passed = slices.DeleteFunc(e.passed, func(l layout.Location) bool { return s.pool.onServer(l, i) })
		if s.pool.onServer(e.at, i) {
			e.at = layout.Location{}
			e.lose()
		}
	}
}

// voidServer gives all nodes of server i to the orphan, the client number 0 that no client has.
// They stay there until no client can append them any more.
func (s *pool) voidServer(i int) {
	on := func(l layout.Location) bool { return s.onServer(l, i) }
	for c := range s.nodes.free {
		s.nodes.free[c].Remove(on)
	}
	s.nodes.worn = slices.DeleteFunc(s.nodes.worn, func(w worn) bool { return on(layout.Location{Handle: w.handle}) })
	s.segments.Stir(i)
	_ = s.runs(i, func(_ layout.Class, first layout.Handle, n int) error {
		for h := first; h < first+layout.Handle(n); h++ {
			s.nodes.held.put(h, held{client: orphan, void: true})
		}
		return nil
	})
	s.orphans, s.void = true, true
}

// recoverOrphans frees the nodes that the orphan holds (see voidServer) when no client can use them
// any more.
func (s *Server) recoverOrphans(now clock.Time) {
	if !s.pool.orphans || now < s.pool.orphansAt || s.pool.orphansAfter != nil && !s.pool.fences.Over(s.pool.orphansAfter) {
		return
	}
	if s.chains.followAll(); !s.chains.allWhole() {
		s.pool.orphansAt = now.Add(downPause)
		return
	}
	if s.pool.void && s.findStrays() != nil {
		s.pool.orphansAt = s.mem.rt.Now().Add(downPause)
		return
	}
	s.pool.orphans, s.pool.void, s.pool.orphansAfter = false, false, nil
	list, per := s.pool.heldBy(orphan)[orphan], s.mem.space.Entries.Total()
	// the same order as in freeAll: in turn from all servers
	slices.SortStableFunc(list, func(a, b layout.Handle) int { return cmp.Compare((int(a)-1)%per, (int(b)-1)%per) })
	// The node's header has version v. A client may have got the node with version v+1, or with
	// version free.front, and not have written it. So the next use of the node must have a later
	// version than these. spared returns v+1; retire then gives the node a later one.
	spared := func(h layout.Handle) layout.Version {
		v := s.pool.nodes.held.of(h).version
		if next, ok := v.Next(); ok {
			return next
		}
		return v
	}
	for _, h := range list {
		if next, ok := spared(h).Next(); ok {
			s.pool.nodes.free[s.pool.classOf(h)].pace(next)
		}
	}
	for _, h := range list {
		l := layout.Location{Handle: h, Version: spared(h)}
		s.pool.nodes.held.drop(h)
		s.pool.retire(l)
	}
}
