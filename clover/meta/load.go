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
	// Clients of an earlier life of the server must not be taken for those of this one, also when no memory tells how many there were.
	if !whole {
		s.owner = s.store >> 16
	}
	s.owner++
	s.nextID = s.owner << 16
	if fresh {
		for i := range s.memory {
			if err := s.formatServer(i); err != nil {
				return err
			}
		}
		if !whole {
			s.freeAll()
			return nil
		}
		for i := range s.memory { // clients of the store that was there may still write its nodes
			s.voidServer(i)
		}
		return nil
	}
	return s.recover()
}

// superblocks reports whether all servers hold parts of one store. Some that do and some that do not are an error: formatting
// would destroy what is left.
func (s *Server) superblocks() (whole bool, err error) {
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
			return false, fmt.Errorf("the memory of %v holds a store of another node format; format it anew (Fresh), or use that format",
				s.cfg.Servers[i])
		}
		found++
		s.memory[i].generation = super.Generation
		s.owner, s.store = max(s.owner, super.Owner), max(s.store, super.Store)
	}
	return found > 0, nil
}

// noTree refuses to format the memory of a server that holds a tree, unless it shall.
func (s *Server) noTree(i int) error {
	if s.cfg.Fresh {
		return nil
	}
	b, err := s.readBulk(i, 0, tree.SuperblockLen)
	if err == nil && new(tree.Superblock).Parse(b) == nil {
		err = fmt.Errorf("the memory of %v holds a tree sherman, which a store would destroy: `rdmalab clover start --fresh` makes one all the same", s.cfg.Servers[i])
	}
	return err
}

// formatServer makes the memory of a server the store's. The superblock comes last: until then nobody takes it for one.
func (s *Server) formatServer(i int) error {
	m := &s.memory[i]
	m.generation = s.rt.Rand().Uint64() | 1
	zero := make([]byte, bulkLen)
	first, _ := s.space.Place(s.space.First(i, s.firstClass()))
	for off := 0; off < first.Offset; off += bulkLen {
		if err := s.writeBulk(i, off, zero[:min(bulkLen, first.Offset-off)]); err != nil {
			return err
		}
	}
	return s.own(i)
}

// own writes the superblock of a server.
func (s *Server) own(i int) error {
	super := layout.Superblock{Format: s.format, Server: i, Generation: s.memory[i].generation, Owner: s.owner, Space: s.space, Store: s.store}
	b := make([]byte, layout.SuperblockLen)
	super.Put(b)
	return s.writeBulk(i, 0, b)
}

// firstClass is the smallest class that has entries.
func (s *Server) firstClass() layout.Class {
	for c, n := range s.space.Entries {
		if n > 0 {
			return layout.Class(c)
		}
	}
	return 0
}

// freeAll puts all nodes into the free lists, by turns of the servers: each client gets some of every one, and can keep a chain on
// one server.
func (s *Server) freeAll() {
	for c, n := range s.space.Entries {
		for k := range n {
			for i := range s.memory {
				h := s.space.First(i, layout.Class(c)) + layout.Handle(k)
				s.nodes.free[c].push(layout.Location{Handle: h, Version: 1})
			}
		}
	}
}
