package meta

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/fabric"
)

// entry is what the server knows of a key.
type entry struct {
	key  uint64
	slot uint32
	// at is the newest node that the server has seen, opened the first one.
	at, opened layout.Location
	// passed are the nodes that the chain has left behind and that are not retired yet.
	passed []layout.Location
	// recorded says that the directory names at.
	recorded bool
	// ended says that the last look at the chain came to its end.
	ended bool
	// dead says that the chain ends in a tombstone; lost that a part of it was in memory that is gone.
	dead, lost bool
}

// walker is scratch space for looking at several chains at a time.
type walker struct {
	ops [lanes]fabric.Op
	// bulk is apart, since a server may have to be reached while lanes wait for others.
	bulk  fabric.Op
	lanes [lanes]lane
}

// lane is one chain that is being followed.
type lane struct {
	e *entry
	// stop is a node whose successor need not be looked for; zero: go to the end.
	stop    layout.Location
	started bool
	err     error
}

// follow follows chains, at most lanes of them, from the nodes that the server knows, and retires what they have passed. stops, if
// not nil, are nodes at which to stop.
func (s *Server) follow(list []*entry, stops []layout.Location) {
	work := s.walk.lanes[:0]
	for i, e := range list {
		l := lane{e: e}
		e.ended = false
		if stops != nil {
			l.stop = stops[i]
		}
		if !e.lost && !e.dead && (l.stop.IsZero() || e.at != l.stop) {
			work = append(work, l)
		}
	}
	for len(work) > 0 {
		s.readHeaders(work)
		left := work[:0]
		for i := range work {
			if s.step(&work[i], i) {
				left = append(left, work[i])
			}
		}
		work = left
	}
	s.record(list)
	for _, e := range list {
		s.settle(e)
	}
}

// readHeaders reads the headers of the nodes at which the lanes stand.
func (s *Server) readHeaders(work []lane) {
	for i := range work {
		l := &work[i]
		l.started, l.err = false, nil
		p, ok := s.space.Place(l.e.at.Handle)
		if !ok {
			l.err = errLost
			continue
		}
		if l.err = s.reach(p.Server); l.err != nil {
			continue
		}
		m := &s.memory[p.Server]
		o := &s.walk.ops[i]
		s.fab.Read(o, m.target(p.Offset), headAt+16*i, layout.HeaderLen)
		l.err = s.fab.Start(o)
		l.started = l.err == nil
	}
	deadline := s.deadline()
	for i := range work {
		if l := &work[i]; l.started {
			if err := s.fab.Wait(deadline, &s.walk.ops[i]); err != nil {
				l.err = errors.Join(errDown, err)
			}
		}
	}
}

// step takes the lane on by one node and reports whether there is more to do.
func (s *Server) step(l *lane, i int) bool {
	e := l.e
	if l.err != nil {
		e.lost = errors.Is(l.err, errLost)
		return false
	}
	s.stats.Walked++
	v, err := s.fab.MR().Load64(headAt + 16*i)
	header := layout.Word(v)
	if err != nil || !header.Valid() || header.EntryVersion() != e.at.Version {
		// A linked node is never given out again, so this is no node of the store any more.
		s.stats.Broken++
		e.lost, e.at = true, layout.Location{}
		return false
	}
	next, more := header.Next()
	switch {
	case more && s.onServer(next, s.losing):
		e.lost = true
		return false
	case header.IsTombstone():
		e.dead, e.ended = true, true
		return false
	case !more:
		e.ended = true
		return false
	}
	s.linked(next)
	e.passed = append(e.passed, e.at)
	e.at, e.recorded = next, false
	return next != l.stop
}

// onServer reports whether a node is on server i.
func (s *Server) onServer(l layout.Location, i int) bool {
	p, ok := s.space.Place(l.Handle)
	return ok && p.Server == i
}

// record brings the directory up to date for entries that have moved, been opened, or died.
func (s *Server) record(list []*entry) {
	started := [lanes]bool{}
	for i, e := range list {
		if e.recorded && !e.dead || e.lost {
			continue
		}
		e.recorded = false
		p, _ := s.space.Record(int(e.slot))
		if s.reach(p.Server) != nil {
			continue
		}
		rec := layout.KeyRecord{Key: e.key, At: e.at}
		if e.dead {
			rec = layout.KeyRecord{}
		}
		var b [layout.RecordLen]byte
		rec.Put(b[:])
		if s.fab.MR().WriteAt(b[:], recordAt+i*layout.RecordLen) != nil {
			return
		}
		m := &s.memory[p.Server]
		o := &s.walk.ops[i]
		s.fab.Write(o, m.target(p.Offset), recordAt+i*layout.RecordLen, layout.RecordLen)
		started[i] = s.fab.Start(o) == nil
	}
	deadline := s.deadline()
	for i, e := range list {
		if started[i] && s.fab.Wait(deadline, &s.walk.ops[i]) == nil {
			e.recorded = true
		}
	}
}

// settle retires what an entry has left behind, now that the directory does not name it any more.
func (s *Server) settle(e *entry) {
	if !e.recorded {
		return
	}
	for _, l := range e.passed {
		s.retire(l)
	}
	e.passed = e.passed[:0]
	if e.dead {
		s.retire(e.at)
		s.forget(e)
	}
}

// forget takes a key out of the table.
func (s *Server) forget(e *entry) {
	if s.keys[e.key] != e {
		return
	}
	delete(s.keys, e.key)
	if s.format.Keyed {
		s.slots = append(s.slots, e.slot) // without keys in nodes, an old shortcut could lead to another key's value
	}
}

const sweepPause = 20 * time.Millisecond

// sweep follows all chains, if that was not done a moment ago.
func (s *Server) sweep() {
	if s.rt.Now() < s.sweepAt {
		return
	}
	s.followAll()
	s.sweepAt = s.rt.Now().Add(sweepPause)
	for _, e := range s.keys {
		if !e.lost && (!e.recorded || !e.ended) {
			s.sweepDue = true // a memory server did not answer
		}
	}
}

// followAll follows all chains to their ends, in the order of their keys.
func (s *Server) followAll() {
	var batch []*entry
	for _, k := range slices.Sorted(maps.Keys(s.keys)) {
		if batch = append(batch, s.keys[k]); len(batch) == lanes {
			s.follow(batch, nil)
			batch = batch[:0]
		}
	}
	s.follow(batch, nil)
}

// nodeHead reads header and key of a node.
func (s *Server) nodeHead(l layout.Location) (header layout.Word, key uint64, err error) {
	p, ok := s.space.Place(l.Handle)
	if !ok {
		return 0, 0, errLost
	}
	if err := s.reach(p.Server); err != nil {
		return 0, 0, err
	}
	m := &s.memory[p.Server]
	o := &s.walk.ops[0]
	s.fab.Read(o, m.target(p.Offset), headAt, layout.HeaderLen+layout.KeyLen)
	if err := s.fab.Do(s.deadline(), o); err != nil {
		return 0, 0, errors.Join(errDown, err)
	}
	var b [layout.HeaderLen + layout.KeyLen]byte
	if err := s.fab.MR().ReadAt(b[:], headAt); err != nil {
		return 0, 0, err
	}
	return layout.HeaderOf(b[:]), binary.LittleEndian.Uint64(b[layout.HeaderLen:]), nil
}
