package meta

import "github.com/rdmalab/rdmalab/clover/layout"

// If the store has several copies of each node, clients append from the last copy to the first (see
// package clover). The metadata server follows the first copies. Where a first copy names no
// successor, it reads the last copy: a client may have died after its append there. Then the server
// makes the same append on the other copies. So when it has followed a chain to its end, every
// append of a fenced client in that chain is on all copies or on none.
//
// The directory has as many copies of each record as there are copies of a node. If there is one
// more server, it has a mirror of the record. Superseded nodes are retired after all copies of the
// record are written.

// copied reports whether the store has several copies of each node.
func (s *memories) copied() bool { return s.space.Backups > 0 }

// copies returns the copies of an entry or of a table on servers whose copies count (servers that
// are not out), beginning with the first.
func (s *memories) copies(p layout.Place) (list []layout.Place) {
	for j := range s.space.Backups + 1 {
		if q := s.space.Copy(p, j); !s.memory[q.Server].out {
			list = append(list, q)
		}
	}
	return list
}

// copyOf returns the first copy of an entry or of a table that counts, or the last one if `last` is
// true. If none counts, it returns errDown.
func (s *memories) copyOf(p layout.Place, last bool) (layout.Place, error) {
	if !s.copied() {
		return p, nil
	}
	list := s.copies(p)
	switch {
	case len(list) == 0:
		return p, errDown
	case last:
		return list[len(list)-1], nil
	}
	return list[0], nil
}

// writeCopies writes b, a part of a table, to all copies of the place p that count: to the first,
// which is at p, and to the others.
func (s *memories) writeCopies(p layout.Place, b []byte) error {
	for _, q := range s.copies(p) {
		if err := s.reach(q.Server); err != nil {
			return err
		}
		if err := s.writeBulk(q.Server, q.Offset, b); err != nil {
			return err
		}
	}
	return nil
}

// complete finishes an append that has been made on the last copy of the node `at`: header, the
// header of that copy, names a successor. complete appends this successor on the other copies. It
// returns false if a memory server did not answer.
func (s *chains) complete(at layout.Location, header layout.Word) bool {
	p, _ := s.mem.space.Place(at.Handle)
	list := s.mem.copies(p)
	for i := len(list) - 2; i >= 0; i-- {
		p := list[i]
		if s.mem.reach(p.Server) != nil {
			return false
		}
		o := &s.mem.walk.bulk
		s.mem.fab.CompareSwap(o, s.mem.memory[p.Server].target(0, p.Offset), uint64(layout.Header(at.Version)), uint64(header), wordAt)
		if s.mem.doLent(o) != nil {
			return false
		}
	}
	return true
}

// stamp returns the generation that a record of the directory stores for a node on this server:
// that of the server's memory. In a store with copies it is 0, because a node survives the loss of
// one memory. If all copies of a node are lost, the record says that the key is lost.
func (s *memories) stamp(server int) uint32 {
	if s.copied() {
		return 0
	}
	return uint32(s.memory[server].generation) & layout.MaxStamp
}

// outs returns the set of servers whose copies do not count, one bit each.
func (s *memories) outs() (set uint16) {
	for i := range s.memory {
		if s.memory[i].out {
			set |= 1 << i
		}
	}
	return set
}

// see replaces the known view, the set of servers whose copies count, by that of a superblock,
// unless the superblock's view is older. If an attempt to write a view has failed, superblocks with
// the same View may differ in Out. Then a server is out if any of these superblocks says so.
func (s *memories) see(super *layout.Superblock) {
	if super.Space.Backups == 0 || super.View < s.view {
		return
	}
	same := super.View == s.view
	s.view = super.View
	for i := range s.memory {
		s.memory[i].out = same && s.memory[i].out || super.Out&(1<<i) != 0
	}
}

// head returns the content for a server's memory up to the table of segment classes: zeros in place
// of the superblock, empty shortcuts, and the records and mirrors that belong on this server.
func (s *membership) head(i int) []byte {
	b := make([]byte, s.mem.space.Table(i).Offset)
	for _, e := range s.chains.keys {
		for j := range s.mem.space.Backups + 1 {
			if p, _ := s.mem.space.RecordCopy(int(e.slot), j); p.Server == i {
				s.chains.recordOf(e).Put(b[p.Offset:])
			}
		}
		if p, ok := s.mem.space.Mirror(int(e.slot)); ok && p.Server == i {
			e.mirror().Put(b[p.Offset:])
		}
	}
	return b
}

// writeHeads writes to a server all but its superblock and its nodes: the shortcuts, records and
// mirrors and, if the classes share the memory (Space.Shared), the tables of segments.
func (s *membership) writeHeads(i int) error {
	if err := s.mem.writeBulk(i, layout.SuperblockLen, s.head(i)[layout.SuperblockLen:]); err != nil || !s.mem.space.Shared {
		return err
	}
	for j := range s.mem.space.Backups + 1 {
		of := s.mem.before(i, j)
		p := s.mem.space.Copy(s.mem.space.Table(of), j)
		if err := s.mem.writeBulk(i, p.Offset, s.pool.segments.Row(of)); err != nil {
			return err
		}
	}
	return nil
}

// before returns the server whose nodes have their copy j on server i.
func (s *memories) before(i, j int) int { return (i - j + len(s.memory)) % len(s.memory) }

// fill writes copy j of all nodes that have their copy j on server i to that server. It reads them
// from the nearest later copy that counts, because an earlier copy must not name a successor that a
// later one does not name. If no later copy counts, it reads the nearest earlier one. If no copy
// counts at all, it erases the nodes.
func (s *pool) fill(i, j int) error {
	of, from := s.mem.before(i, j), -1
	for k := range s.mem.space.Backups + 1 {
		if s.mem.memory[(of+k)%len(s.mem.memory)].out {
			continue
		}
		if from < 0 || k < j || from < j {
			from = k
		}
	}
	return s.runs(of, func(c layout.Class, first layout.Handle, n int) error {
		per := bulkLen / c.Size()
		for at := 0; at < n; at += per {
			p, _ := s.mem.space.Place(first + layout.Handle(at))
			b := make([]byte, min(per, n-at)*c.Size())
			if from >= 0 {
				src := s.mem.space.Copy(p, from)
				var err error
				if b, err = s.mem.readBulk(src.Server, src.Offset, len(b)); err != nil {
					return err
				}
			}
			if err := s.mem.writeBulk(i, s.mem.space.Copy(p, j).Offset, b); err != nil {
				return err
			}
		}
		return nil
	})
}

// Generations returns the generations of all servers' memory. made has, for each server, the
// generation with which its memory was last formatted or filled. counted is the same list with 0
// for servers whose copies do not count. Only the thread of Serve may call it, or any one thread
// after Serve has returned.
func (s *Server) Generations() (made, counted []uint64) {
	for i := range s.mem.memory {
		g := s.mem.memory[i].generation
		if made = append(made, g); s.mem.memory[i].out {
			g = 0
		}
		counted = append(counted, g)
	}
	return made, counted
}
