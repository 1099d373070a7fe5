package meta

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/store/superblock"
)

// load finds the store in the memory of the servers, or formats a new one.
func (s *Server) load() error {
	region := s.mem.cfg.Region
	for i := range s.mem.memory {
		if n := s.mem.memory[i].ways[0].region.Len; region == 0 || n < region {
			region = n
		}
	}
	exists, err := s.mem.superblocks()
	if err == nil {
		err = s.mem.arrange(region, exists && !s.mem.cfg.Fresh)
	}
	if err != nil {
		return err
	}
	for i := s.mem.space.Slots() - 1; i >= 0; i-- {
		s.chains.slots = append(s.chains.slots, uint32(i))
	}
	fresh := !exists || s.mem.cfg.Fresh
	if fresh {
		s.mem.store = uint32(s.mem.rt.Rand().Uint64()) | 1
	}
	// Clients of an earlier incarnation of the metadata server must not be taken for clients of
	// this one. If no superblock says how many incarnations there were, they are counted from a
	// random number on.
	if !exists {
		s.mem.owner = s.mem.store % firstIncarnations
	}
	before := s.mem.owner
	if err := s.mem.takeOver(); err != nil {
		return err
	}
	s.pool.nextID, s.pool.endID = s.mem.owner<<incarnationBits, s.mem.self
	s.pool.clock = uint64(s.mem.owner) << clockBits
	s.pool.fencedTo = s.pool.nextID
	s.pool.noSegments()
	if !s.mem.cfg.Fresh {
		if err := s.compare(before); err != nil {
			return err
		}
	}
	if !fresh {
		return s.recover()
	}
	// First the superblocks of all servers are erased. Otherwise, if this metadata server died
	// here, a server with its old superblock would be taken for a part of the new store.
	for i := range s.mem.memory {
		if err := s.mem.writeBulk(i, 0, make([]byte, layout.SuperblockLen)); err != nil {
			return err
		}
	}
	for i := range s.mem.memory {
		if err := s.members.formatServer(i); err != nil {
			return err
		}
	}
	s.pool.freeAll()
	return nil
}

// compare reads the superblocks again after takeOver, and compares them with what the function
// superblocks has found. before is the number of the metadata server that wrote the latest of them.
//
// A server may have crashed after the function superblocks read its superblock, and may have
// answered takeOver when it was up again. Then its memory is lost, and its empty directory does not
// mean that there are no keys.
//
// If this metadata server hung between the functions superblocks and takeOver, another one may have
// served the store meanwhile: one that started then, or the one before, which may have changed the
// view. Then what the function superblocks has found is out of date: copies that counted then may
// be old, and memory that was empty then may have a store now. compare returns errBetween.
func (s *Server) compare(before uint32) error {
	view := s.mem.view
	for i := range s.mem.memory {
		switch super, err := s.mem.superblock(i); {
		case err == nil && (super.Owner > before || super.View > view):
			return errBetween
		case errors.Is(err, errDeposed):
			return errBetween
		case errors.Is(err, layout.ErrSuperblock), err == nil && super.Generation != s.mem.memory[i].generation:
			s.mem.memory[i].generation, s.mem.memory[i].marked = 0, 0
		case err != nil:
			return err
		}
	}
	return nil
}

// arrange sets s.space. If a store was found in memory (stored), s.space stays that store's.
// Otherwise arrange computes it from the configuration, for region bytes of each server. The space
// must be the one with which the directory was written: with another one the directory has wrong
// keys, or none.
func (s *memories) arrange(region int, stored bool) (err error) {
	if !stored || s.space.Servers == 0 {
		s.space, err = s.cfg.space(region)
		return err
	}
	if need := s.space.RegionLen(); region < need {
		err = fmt.Errorf("the store in memory needs %d bytes of each memory server, and one has %d", need, region)
	}
	return err
}

// superblocks reads all superblocks. exists is true if at least one server has one: then there is a
// store, and the servers without a superblock have lost their memory. Unless the configuration says
// Fresh, superblocks returns an error in three cases, in which formatting would destroy data: the
// store has another format or arrangement, or other servers; or there is no store, and some memory
// does not begin with a zero word; or the memory of a server without a superblock has the data of
// another store.
func (s *memories) superblocks() (exists bool, err error) {
	found, held := 0, error(nil)
	for i := range s.memory {
		var super layout.Superblock
		b, err := s.readBulk(i, 0, layout.SuperblockLen)
		if err == nil {
			err = super.Parse(b)
		}
		switch {
		case errors.Is(err, layout.ErrSuperblock):
			if err := s.notForeign(i); err != nil {
				return false, err
			}
			if binary.LittleEndian.Uint64(b) != 0 && !s.cfg.Fresh {
				held = fmt.Errorf("the memory of %v holds other data, not a store of Clover; `rdmalab clover start --fresh` overwrites it", s.cfg.Servers[i])
			}
			continue
		case errors.Is(err, layout.ErrVersion) && s.cfg.Fresh:
			continue
		case errors.Is(err, layout.ErrVersion):
			return false, fmt.Errorf("the memory of %v holds %w; `rdmalab clover start --fresh` overwrites it", s.cfg.Servers[i], err)
		case err != nil:
			return false, err
		}
		found++
		s.owner = max(s.owner, super.Owner)
		if s.cfg.Fresh {
			continue
		}
		if err := s.belongs(i, &super, found == 1); err != nil {
			return false, fmt.Errorf("the memory of %v holds %w; name the servers of that store in its order, or format it again (Fresh)",
				s.cfg.Servers[i], err)
		}
		s.memory[i].generation = super.Generation
		s.space, s.store = super.Space, super.Store
		s.see(&super)
		if super.Out&(1<<i) != 0 {
			s.memory[i].marked = super.View
		}
	}
	if found == 0 {
		return false, held
	}
	return true, nil
}

// belongs returns an error if the superblock of server i is that of a store with another node
// format, number of copies or number of servers than configured, or of another server of the store.
// If first is false, a server before i has a superblock, and both must be of the same store.
func (s *memories) belongs(i int, super *layout.Superblock, first bool) error {
	switch n := super.Space.Servers; {
	case super.Format != s.cfg.Format:
		return errors.New("a store of another node format")
	case s.cfg.Replicas != 0 && s.cfg.Replicas != super.Space.Backups+1:
		return fmt.Errorf("a store with %d copies of each node", super.Space.Backups+1)
	case super.Server != i, n != 0 && n != len(s.memory):
		return fmt.Errorf("part %d of a store on %d servers", super.Server+1, n)
	case !first && (super.Store != s.store || super.Space != s.space):
		return errors.New("a part of another store than the servers before it")
	}
	return nil
}

// notForeign returns an error if the memory of server i has another store's data, unless Fresh is
// set.
func (s *memories) notForeign(i int) error {
	if s.cfg.Fresh {
		return nil
	}
	b, err := s.readBulk(i, 0, layout.SuperblockLen)
	if err != nil {
		return err
	}
	if holds := superblock.Foreign(b, superblock.Clover); holds != "" {
		return fmt.Errorf("the memory of %v holds %s; `rdmalab clover start --fresh` overwrites it", s.cfg.Servers[i], holds)
	}
	return nil
}

// formatServer formats the memory of server i, including its part of the directory. It writes the
// superblock last. Until then, no client and no restarted metadata server mistakes the memory for a
// store's.
func (s *membership) formatServer(i int) error {
	m := &s.mem.memory[i]
	m.generation = s.mem.rt.Rand().Uint64() | 1
	first, _ := s.mem.space.Place(s.mem.space.First(i, 0))
	b := make([]byte, first.Offset)
	if s.mem.copied() {
		if err := s.writeHeads(i); err != nil {
			return err
		}
		return s.mem.writeOwner(i)
	}
	for _, e := range s.chains.keys {
		if p, _ := s.mem.space.Record(int(e.slot)); p.Server == i {
			rec := s.chains.recordOf(e)
			if s.pool.onServer(e.at, i) {
				rec = layout.KeyRecord{Key: e.key, Lost: true}
			}
			rec.Put(b[p.Offset:])
		}
		if p, ok := s.mem.space.Mirror(int(e.slot)); ok && p.Server == i {
			e.mirror().Put(b[p.Offset:])
		}
	}
	if s.mem.space.Shared {
		copy(b[s.mem.space.Table(i).Offset:], s.pool.segments.Row(i))
	}
	if err := s.mem.writeBulk(i, 0, b); err != nil {
		return err
	}
	return s.mem.writeOwner(i)
}

// writeOwner writes the superblock of server i, with the number of this incarnation of the metadata
// server.
func (s *memories) writeOwner(i int) error {
	super := layout.Superblock{Format: s.format, Server: i, Generation: s.memory[i].generation, Owner: s.owner, Space: s.space, Store: s.store}
	super.View, super.Out = s.view, s.outs()
	s.written = max(s.written, s.owner)
	b := make([]byte, layout.SuperblockLen)
	super.Put(b)
	return s.writeBulk(i, 0, b)
}

func (s *pool) freeAll() {
	// The runs of nodes of one class are the same on all servers.
	_ = s.runs(0, func(c layout.Class, first layout.Handle, n int) error {
		for k := range n {
			for i := range s.mem.memory {
				h := s.mem.space.First(i, c) + first - s.mem.space.First(0, c) + layout.Handle(k)
				s.release(layout.Location{Handle: h, Version: 1})
			}
		}
		return nil
	})
}
