package meta

import (
	"errors"
	"maps"
	"slices"

	"github.com/rdmalab/rdmalab/clover/layout"
)

// orphan is the client that holds what clients of an earlier life of the server may have.
const orphan = 0

// sorted lists the entries in the order of their keys.
func (s *Server) sorted() []*entry {
	list := make([]*entry, 0, len(s.keys))
	for _, k := range slices.Sorted(maps.Keys(s.keys)) {
		list = append(list, s.keys[k])
	}
	return list
}

// recover rebuilds the tables from the memory of the servers: keys from the directory, newest nodes from the chains. All other nodes
// may still be in the hands of clients that this server does not know any more; they are free when those clients' leases and the
// packets of their NICs must have ended, if no chain has them by then.
func (s *Server) recover() error {
	taken := make(map[uint32]bool)
	var lost []int
	for i := range s.memory {
		if s.memory[i].generation == 0 { // this one has lost its memory while nobody looked
			if err := s.formatServer(i); err != nil {
				return err
			}
			s.stats.Losses++
			lost = append(lost, i)
			continue
		}
		if err := s.own(i); err != nil {
			return err
		}
		if err := s.readDirectory(i, taken); err != nil {
			return err
		}
	}
	slots := s.slots[:0]
	for _, slot := range s.slots {
		if !taken[slot] {
			slots = append(slots, slot)
		}
	}
	s.slots = slots
	if err := s.holdAll(); err != nil {
		return err
	}
	for _, i := range lost {
		s.voidServer(i)
	}
	for _, e := range s.keys {
		if s.nodes.held[e.at.Handle].void {
			e.at = layout.Location{}
			e.lose()
		}
		s.linked(e.at)
	}
	s.followAll()
	s.stats.Recovered = uint64(len(s.keys))
	s.orphansAt = s.rt.Now().Add(s.cfg.Lease + s.cfg.Grace)
	return nil
}

// readDirectory reads the keys of one server's directory.
func (s *Server) readDirectory(i int, taken map[uint32]bool) error {
	first, _ := s.space.Record(i)
	for at := 0; at < s.space.Shortcuts; at += bulkLen / layout.RecordLen {
		n := min(bulkLen/layout.RecordLen, s.space.Shortcuts-at)
		b, err := s.readBulk(i, first.Offset+at*layout.RecordLen, n*layout.RecordLen)
		if err != nil {
			return err
		}
		for k := range n {
			rec, ok := layout.ParseKeyRecord(b[k*layout.RecordLen:])
			if !ok {
				continue
			}
			slot := uint32((at+k)*s.space.Servers + i)
			taken[slot] = true
			s.keys[rec.Key] = &entry{key: rec.Key, slot: slot, at: rec.At, opened: rec.At, lost: rec.Lost, recorded: true}
		}
	}
	return nil
}

// holdAll reads the headers of all nodes, for their versions, and lets the orphan hold every node. Those in chains are taken
// out when they are met there.
func (s *Server) holdAll() error {
	for i := range s.memory {
		for c, n := range s.space.Entries {
			if err := s.holdClass(i, layout.Class(c), n); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Server) holdClass(i int, c layout.Class, n int) error {
	first := s.space.First(i, c)
	per := bulkLen / c.Size()
	for at := 0; at < n; at += per {
		k := min(per, n-at)
		p, _ := s.space.Place(first + layout.Handle(at))
		b, err := s.readBulk(i, p.Offset, k*c.Size())
		if err != nil {
			return err
		}
		for j := range k {
			v := layout.Version(0)
			if h := layout.HeaderOf(b[j*c.Size():]); h.Valid() {
				v = h.EntryVersion()
			}
			s.nodes.held[first+layout.Handle(at+j)] = held{client: orphan, version: v}
		}
	}
	return nil
}

// findStrays looks for nodes that are nowhere: those behind the lost part of a chain. Whoever knew one has no lease any more when
// this is called; the orphan takes them.
func (s *Server) findStrays() error {
	known := make(map[layout.Handle]bool)
	for c := range s.nodes.free {
		q := &s.nodes.free[c]
		for _, l := range q.list[q.head:] {
			known[l.Handle] = true
		}
	}
	for h := range s.nodes.held {
		known[h] = true
	}
	for _, w := range s.nodes.worn {
		known[w.handle] = true
	}
	for _, e := range s.keys {
		known[e.at.Handle] = true
		for _, l := range e.passed {
			known[l.Handle] = true
		}
	}
	for h := layout.Handle(1); int(h) <= s.space.Entries.Total()*s.space.Servers; h++ {
		if known[h] {
			continue
		}
		header, _, err := s.nodeHead(layout.Location{Handle: h})
		if err != nil {
			return err
		}
		s.nodes.held[h] = held{client: orphan, version: header.EntryVersion()}
	}
	return nil
}

// heldBy lists the nodes that a client holds, in their order.
func (s *Server) heldBy(id uint32) []layout.Handle {
	var list []layout.Handle
	for h, n := range s.nodes.held {
		if n.client == id {
			list = append(list, h)
		}
	}
	slices.Sort(list)
	return list
}

// recoverClient takes back what a client that has gone held. Nodes that it has linked without saying so are found by following the
// chains of their keys. It reports false if a memory server did not answer: then it is tried again.
func (s *Server) recoverClient(id uint32) bool {
	if !s.format.Keyed { // a node does not say whose it is
		if s.followAll(); !s.allWhole() {
			return false
		}
	}
	for _, h := range s.heldBy(id) {
		l := layout.Location{Handle: h, Version: s.nodes.held[h].version}
		if s.format.Keyed {
			header, key, err := s.nodeHead(l)
			if errors.Is(err, errLost) {
				continue // the loss takes it
			}
			if err != nil {
				return false
			}
			if e := s.keys[key]; e != nil && header.Valid() && header.EntryVersion() == l.Version {
				s.follow([]*entry{e}, -1)
				if !e.whole() {
					return false // it may have the node further on
				}
			}
		}
		if s.heldAs(id, l) {
			delete(s.nodes.held, h)
			s.retire(l)
		}
	}
	return true
}
