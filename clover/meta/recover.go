package meta

import (
	"errors"
	"maps"
	"slices"

	"github.com/rdmalab/rdmalab/clover/layout"
)

// orphan is a client number that no client has. The server counts nodes as held by the orphan as
// long as it does not know whether they are in a chain, or whether a client may still link them
// (see the package comment).
const orphan = 0

// sorted returns the entries in the order of their keys.
func (s *chains) sorted() []*entry {
	list := make([]*entry, 0, len(s.keys))
	for _, k := range slices.Sorted(maps.Keys(s.keys)) {
		list = append(list, s.keys[k])
	}
	return list
}

// recover rebuilds the tables from the memory of the servers: the keys from the directory, their
// newest nodes from the chains. All other nodes become free, because the clients of the earlier
// incarnation have no connection any more.
func (s *Server) recover() error {
	if s.mem.copied() {
		if err := s.members.recover(); err != nil {
			return err
		}
		s.recoverOrphans(s.mem.rt.Now()) // the function keep calls it again if a memory server does not answer
		return nil
	}
	taken := make(map[uint32]bool)
	var lost []int
	for i := range s.mem.memory {
		// The memory was lost, and formatting it again was not completed.
		if s.mem.memory[i].generation == 0 {
			lost = append(lost, i)
			continue
		}
		if err := s.mem.writeOwner(i); err != nil {
			return err
		}
		if err := errors.Join(s.members.readCopies(i, taken), s.mem.eraseShortcuts(i)); err != nil {
			return err // shortcuts are erased because this incarnation counts epochs from 1 again
		}
	}
	for _, i := range lost {
		if _, err := s.members.readMirrors(i, taken); err != nil {
			return err
		}
	}
	for _, i := range lost {
		if err := s.members.formatServer(i); err != nil {
			return err
		}
		s.mem.stats.Losses++
	}
	s.chains.slots = slices.DeleteFunc(s.chains.slots, func(slot uint32) bool { return taken[slot] })
	if err := s.pool.holdAll(); err != nil {
		return err
	}
	for _, i := range lost {
		s.pool.voidServer(i)
	}
	for _, e := range s.chains.keys {
		s.pool.linked(e.at)
	}
	s.pool.orphans = true
	s.recoverOrphans(s.mem.rt.Now()) // follows all chains; the function keep calls it again if a memory server does not answer
	s.mem.stats.Recovered = uint64(len(s.chains.keys))
	return nil
}

// entryOf returns the entry for a record of the directory. If the key's node was in memory of
// another generation, the key is lost: in the present generation the node may belong to another
// key.
func (s *chains) entryOf(rec layout.KeyRecord, slot uint32) *entry {
	e := &entry{key: rec.Key, slot: slot, lost: rec.Lost, recorded: true, mirrored: true}
	switch p, ok := s.mem.space.Place(rec.At.Handle); {
	case rec.Lost:
	case !ok || s.mem.stamp(p.Server) != rec.Generation:
		e.lose()
	default:
		e.at, e.opened = rec.At, rec.At
	}
	return e
}

// readMirrors reads the mirrors of the directory of server i, after all copies of this directory
// were lost. It adds the slots of the keys that the mirrors name to `taken`. known is false if
// there are no mirrors that count.
func (s *membership) readMirrors(i int, taken map[uint32]bool) (known bool, err error) {
	first, ok := s.mem.space.Mirror(i)
	if !ok || s.mem.memory[first.Server].generation == 0 || s.mem.memory[first.Server].out {
		return false, nil
	}
	return true, s.readLost(i, first, taken)
}

// readLost reads the mirrors or the old records of the keys whose records belong in the directory
// of server i. They begin at place `first`. A key that they name is lost, unless chains.keys has the
// key, or another record has already taken its slot (`taken`).
func (s *membership) readLost(i int, first layout.Place, taken map[uint32]bool) error {
	return s.readRecords(first, func(n int, rec layout.KeyRecord) {
		slot := uint32(n*s.mem.space.Servers + i)
		if s.chains.keys[rec.Key] == nil && !taken[slot] {
			taken[slot], s.chains.keys[rec.Key] = true, &entry{key: rec.Key, slot: slot, lost: true, mirrored: true}
		}
	})
}

// readRecords reads the records or mirrors of one server, beginning at place `first`. It calls f
// for each record that names a key; n is the number of the record on the server.
func (s *membership) readRecords(first layout.Place, f func(n int, rec layout.KeyRecord)) error {
	for at := 0; at < s.mem.space.Shortcuts; at += bulkLen / layout.RecordLen {
		n := min(bulkLen/layout.RecordLen, s.mem.space.Shortcuts-at)
		b, err := s.mem.readBulk(first.Server, first.Offset+at*layout.RecordLen, n*layout.RecordLen)
		if err != nil {
			return err
		}
		for k := range n {
			if rec, ok := layout.ParseKeyRecord(b[k*layout.RecordLen:]); ok {
				f(at+k, rec)
			}
		}
	}
	return nil
}

// holdAll reads the headers of all nodes of which a copy counts, to learn their versions, and gives
// every such node to the orphan, the client number that no client has. When the server follows the
// chains afterwards, it takes the linked nodes from the orphan again. A node without a header has
// not been written since its memory was formatted. A chain that leads to such a node is older than
// the formatting, so its key is lost.
func (s *pool) holdAll() error {
	for i := range s.mem.memory {
		if s.mem.isGone(i) {
			continue
		}
		if err := s.runs(i, s.holdRun); err != nil {
			return err
		}
	}
	return nil
}

func (s *pool) holdRun(c layout.Class, first layout.Handle, n int) error {
	per := bulkLen / c.Size()
	for at := 0; at < n; at += per {
		k := min(per, n-at)
		p, _ := s.mem.space.Place(first + layout.Handle(at))
		p, err := s.mem.copyOf(p, false)
		if err != nil {
			return err
		}
		b, err := s.mem.readBulk(p.Server, p.Offset, k*c.Size())
		if err != nil {
			return err
		}
		for j := range k {
			n := held{client: orphan, void: true}
			if h := layout.HeaderOf(b[j*c.Size():]); h.Valid() {
				n.version, n.void = h.EntryVersion(), false
			}
			s.nodes.held.put(first+layout.Handle(at+j), n)
		}
	}
	return nil
}

// findStrays gives to the orphan, the client number that no client has, the nodes that are neither
// free nor held nor worn nor in a known part of a chain, because they come after the lost part of a
// chain. When it is called, every client that knew such a node has lost its lease.
func (s *Server) findStrays() error {
	known := make(map[layout.Handle]bool)
	for c := range s.pool.nodes.free {
		s.pool.nodes.free[c].All(func(l layout.Location) { known[l.Handle] = true })
	}
	for h := range s.pool.nodes.held.all() {
		known[h] = true
	}
	for _, w := range s.pool.nodes.worn {
		known[w.handle] = true
	}
	for _, e := range s.chains.keys {
		known[e.at.Handle] = true
		for _, l := range e.passed {
			known[l.Handle] = true
		}
	}
	for i := range s.mem.memory {
		err := s.pool.runs(i, func(_ layout.Class, first layout.Handle, n int) error {
			for h := first; h < first+layout.Handle(n); h++ {
				if known[h] {
					continue
				}
				header, _, err := s.chains.nodeHead(layout.Location{Handle: h})
				if err != nil {
					return err
				}
				s.pool.nodes.held.put(h, held{client: orphan, version: header.EntryVersion()})
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// heldBy returns the nodes that each of these clients holds, in the order of their handles.
func (s *pool) heldBy(ids ...uint32) map[uint32][]layout.Handle {
	lists := make(map[uint32][]layout.Handle, len(ids))
	for _, id := range ids {
		lists[id] = nil
	}
	for h, n := range s.nodes.held.all() {
		if list, ok := lists[n.client]; ok {
			lists[n.client] = append(list, h)
		}
	}
	return lists
}

// recoverClients takes back the nodes of clients that have ended, whose fences are over. The nodes of all
// of them are found at once: a thousand clients may end together, and hold most of a large pool.
func (s *Server) recoverClients(ended []uint32) {
	ended = slices.DeleteFunc(ended, func(id uint32) bool {
		f := s.pool.clients[id].fence
		return f != nil && !s.pool.fences.Over(f)
	})
	if len(ended) == 0 {
		return
	}
	held := s.pool.heldBy(ended...)
	for _, id := range ended {
		if s.recoverClient(id, held[id]) {
			delete(s.pool.clients, id)
			s.chains.sweepDue = true
		}
	}
}

// recoverClient takes back the nodes of a client that has gone; list has those that it held when the
// recovery began. It follows the chains of the keys in those nodes, to find nodes that the client has linked
// and not reported. It returns false if a memory server did not answer; the caller tries again later.
func (s *Server) recoverClient(id uint32, list []layout.Handle) bool {
	if !s.chains.erase() {
		return false
	}
	if !s.mem.format.Keyed { // without keys, nodes do not say which chains to follow
		if s.chains.followAll(); !s.chains.allWhole() {
			return false
		}
	}
	for _, h := range list {
		if s.pool.nodes.held.of(h).client != id {
			continue // given back meanwhile
		}
		l := layout.Location{Handle: h, Version: s.pool.nodes.held.of(h).version}
		if e := s.pool.nodes.held.of(h).entry; e != nil && s.chains.keys[e.key] == e && !e.lost {
			continue // it becomes free like all reported nodes
		}
		header, key, err := s.chains.nodeHead(l)
		if errors.Is(err, errLost) {
			continue // the function lose takes the node back
		}
		if err != nil {
			return false
		}
		written := header.Valid() && header.EntryVersion() >= l.Version
		if written {
			l.Version = header.EntryVersion() // the client may have raised it (layout.Version.Pace)
		}
		if e := s.chains.keys[key]; s.mem.format.Keyed && e != nil && written {
			s.chains.follow([]*entry{e}, -1)
			if !e.whole() {
				return false // the unread part of the chain may contain the node
			}
		}
		if s.pool.heldAs(id, l) {
			s.pool.nodes.held.drop(h)
			s.pool.retire(l)
		}
	}
	return true
}
