package meta

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/clover/layout"
	tree "github.com/rdmalab/rdmalab/sherman/layout"
)

// load finds the store in the memory of the servers, or formats it.
func (s *Server) load() error {
	region := s.cfg.Region
	for i := range s.memory {
		if n := s.memory[i].ways[0].region.Len; region == 0 || n < region {
			region = n
		}
	}
	var err error
	if s.space, err = s.cfg.space(region); err != nil {
		return err
	}
	whole, err := s.superblocks()
	if err != nil {
		return err
	}
	for i := s.space.Slots() - 1; i >= 0; i-- {
		s.slots = append(s.slots, uint32(i))
	}
	fresh := !whole || s.cfg.Fresh
	if fresh {
		s.store = uint32(s.rt.Rand().Uint64()) | 1
	}
	// Clients of an earlier incarnation of the server must not be taken for those of this one, even
	// when no superblock says how many incarnations there were.
	if !whole {
		s.owner = s.store % firstIncarnations
	}
	if err := s.takeOver(); err != nil {
		return err
	}
	s.nextID, s.endID = s.owner<<incarnationBits, s.self
	s.fencedTo = s.nextID
	if !fresh {
		return s.recover()
	}
	for i := range s.memory {
		if err := s.formatServer(i); err != nil {
			return err
		}
	}
	s.freeAll()
	return nil
}

// superblocks reports whether the servers hold a store. A server without a superblock, while others
// have one, has lost its memory. A store of another format is an error: formatting would destroy
// it.
func (s *memories) superblocks() (whole bool, err error) {
	found := 0
	for i := range s.memory {
		super, err := s.superblock(i)
		switch {
		case errors.Is(err, layout.ErrSuperblock):
			if err := s.noTree(i); err != nil {
				return false, err
			}
			continue
		case err != nil:
			return false, err
		}
		if super.Format != s.cfg.Format && !s.cfg.Fresh {
			return false, fmt.Errorf("the memory of %v holds a store of another node format; format it again (Fresh), or use that format",
				s.cfg.Servers[i])
		}
		found++
		s.memory[i].generation = super.Generation
		s.owner, s.store = max(s.owner, super.Owner), max(s.store, super.Store)
	}
	return found > 0, nil
}

// noTree refuses to format the memory of a server that holds a Sherman tree, unless Fresh is set.
func (s *memories) noTree(i int) error {
	if s.cfg.Fresh {
		return nil
	}
	b, err := s.readBulk(i, 0, tree.SuperblockLen)
	if err == nil && new(tree.Superblock).Parse(b) == nil {
		err = fmt.Errorf("the memory of %v holds a Sherman tree, which a store would overwrite: `rdmalab clover start --fresh` formats it all the same", s.cfg.Servers[i])
	}
	return err
}

// formatServer formats the memory of a server, with the part of the directory that is there. It
// writes the superblock last: until then no client and no restarted metadata server takes the
// memory for a store's.
func (s *chains) formatServer(i int) error {
	m := &s.memory[i]
	m.generation = s.rt.Rand().Uint64() | 1
	first, _ := s.space.Place(s.space.First(i, s.firstClass()))
	b := make([]byte, first.Offset)
	for _, e := range s.keys {
		if p, _ := s.space.Record(int(e.slot)); p.Server == i {
			rec := s.recordOf(e)
			if s.onServer(e.at, i) {
				rec = layout.KeyRecord{Key: e.key, Lost: true}
			}
			rec.Put(b[p.Offset:])
		}
		if p, ok := s.space.Mirror(int(e.slot)); ok && p.Server == i {
			mirrorOf(e).Put(b[p.Offset:])
		}
	}
	if err := s.writeBulk(i, 0, b); err != nil {
		return err
	}
	return s.own(i)
}

// own writes the superblock of a server.
func (s *memories) own(i int) error {
	super := layout.Superblock{Format: s.format, Server: i, Generation: s.memory[i].generation, Owner: s.owner, Space: s.space, Store: s.store}
	b := make([]byte, layout.SuperblockLen)
	super.Put(b)
	return s.writeBulk(i, 0, b)
}

// firstClass is the smallest class that has entries.
func (s *memories) firstClass() layout.Class {
	for c, n := range s.space.Entries {
		if n > 0 {
			return layout.Class(c)
		}
	}
	return 0
}

// freeAll puts all nodes into the free lists, alternating between the servers: each client gets
// nodes of every server, and can keep a chain on one of them.
func (s *pool) freeAll() {
	for c, n := range s.space.Entries {
		for k := range n {
			for i := range s.memory {
				h := s.space.First(i, layout.Class(c)) + layout.Handle(k)
				s.nodes.free[c].push(layout.Location{Handle: h, Version: 1})
			}
		}
	}
}
