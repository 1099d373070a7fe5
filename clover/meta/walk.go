package meta

import (
	"encoding/binary"
	"errors"
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

	// ahead is how many nodes were reported that the chain has not come to; closing says that one of them is a tombstone.
	ahead   int
	closing bool
	// waiting says that it is in the list of those that are behind, seen is where it stood when they were looked at.
	waiting bool
	seen    layout.Location
	turn    uint64 // of advance, in which it was touched
}

// walker is scratch space for looking at several chains at a time, and what was reported and read of them.
type walker struct {
	ops  [lanes]fabric.Op
	errs [lanes]error // of the headers that are being read
	// bulk is apart, since a server may have to be reached while lanes wait for others.
	bulk  fabric.Op
	lanes [lanes]*entry
	way   int

	hints      []hint
	successors map[layout.Location]layout.Location
	behind     []*entry
	turn       uint64

	touched, closing []*entry // scratch of advance and catchUp
}

// startHeader begins to read the header of a node, for lane i.
func (s *Server) startHeader(i int, at layout.Location) error {
	o := &s.walk.ops[i]
	o.Done = true
	p, ok := s.space.Place(at.Handle)
	if !ok {
		return errLost
	}
	if err := s.reach(p.Server); err != nil {
		return err
	}
	s.fab.Read(o, s.memory[p.Server].target(s.nextWay(), p.Offset), headAt+16*i, layout.HeaderLen)
	return s.fab.Start(o)
}

// nextWay spreads READs over the connections to a server: the depth of each is bounded.
func (s *Server) nextWay() int {
	s.walk.way++
	return s.walk.way
}

// waitHeaders waits for the headers of the first n lanes.
func (s *Server) waitHeaders(n int) {
	deadline := s.deadline()
	for i := range n {
		if s.walk.errs[i] != nil {
			continue
		}
		if err := s.fab.Wait(deadline, &s.walk.ops[i]); err != nil {
			s.walk.errs[i] = errors.Join(errDown, err)
		}
	}
}

// header is what lane i has read.
func (s *Server) header(i int) (layout.Word, error) {
	v, err := s.fab.MR().Load64(headAt + 16*i)
	return layout.Word(v), err
}

// follow follows chains to their ends, from the nodes that the server knows, for so many round trips (negative: any number), and
// retires what they have passed.
func (s *Server) follow(list []*entry, rounds int) {
	for part := range slices.Chunk(list, lanes) {
		work := s.walk.lanes[:0]
		for _, e := range part {
			if e.ended = false; !e.lost && !e.dead {
				work = append(work, e)
			}
		}
		for n := 0; len(work) > 0 && (rounds < 0 || n < rounds); n++ {
			for i, e := range work {
				s.walk.errs[i] = s.startHeader(i, e.at)
			}
			s.waitHeaders(len(work))
			left := work[:0]
			for i, e := range work {
				if s.step(e, i) {
					left = append(left, e)
				}
			}
			work = left
		}
		s.commit(part)
	}
}

// step takes an entry on by what lane i has read of its node, and reports whether there is more to do.
func (s *Server) step(e *entry, i int) bool {
	if err := s.walk.errs[i]; err != nil {
		if errors.Is(err, errLost) {
			e.lose()
		}
		return false
	}
	s.stats.Walked++
	header, err := s.header(i)
	if err != nil || !header.Valid() || header.EntryVersion() != e.at.Version {
		// A linked node is never given out again, so this is no node of the store any more.
		s.stats.Broken++
		e.at = layout.Location{}
		e.lose()
		return false
	}
	next, more := header.Next()
	switch {
	case header.IsTombstone():
		e.dead, e.ended = true, true
		return false
	case !more:
		// What was reported and is not in the chain, its client no longer has.
		e.ended, e.ahead = true, 0
		return false
	}
	s.pass(e, next)
	s.stride(e)
	return !e.lost
}

// pass moves an entry on by one node.
func (s *Server) pass(e *entry, next layout.Location) {
	delete(s.walk.successors, e.at)
	n, ok := s.nodes.held[next.Handle]
	if n.void {
		e.lose()
		return
	}
	if ok && n.reported && n.version == next.Version && e.ahead > 0 {
		e.ahead--
	}
	s.linked(next)
	e.passed = append(e.passed, e.at)
	e.at, e.recorded = next, false
}

// onServer reports whether a node is on server i.
func (s *Server) onServer(l layout.Location, i int) bool {
	p, ok := s.space.Place(l.Handle)
	return ok && p.Server == i
}

// commit brings the directory up to date for entries, and retires what they have left behind.
func (s *Server) commit(list []*entry) {
	for part := range slices.Chunk(list, lanes) {
		s.record(part)
		for _, e := range part {
			s.settle(e)
		}
	}
}

// record brings the directory up to date for at most lanes entries that have moved, been opened, died, or been lost.
func (s *Server) record(list []*entry) {
	started := [lanes]bool{}
	for i, e := range list {
		if e.recorded && (!e.dead || e.lost) {
			continue
		}
		e.recorded = false
		p, _ := s.space.Record(int(e.slot))
		if s.reach(p.Server) != nil {
			continue
		}
		rec := layout.KeyRecord{Key: e.key, At: e.at, Lost: e.lost}
		if e.dead && !e.lost {
			rec = layout.KeyRecord{}
		}
		var b [layout.RecordLen]byte
		rec.Put(b[:])
		if s.fab.MR().WriteAt(b[:], recordAt+i*layout.RecordLen) != nil {
			return
		}
		o := &s.walk.ops[i]
		s.fab.Write(o, s.memory[p.Server].target(0, p.Offset), recordAt+i*layout.RecordLen, layout.RecordLen)
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
	if e.lost {
		s.strip(e)
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
	s.sweepDue = s.sweepDue || !s.allWhole() // a memory server did not answer
}

// whole says that the last look at an entry came to the end of its chain, and is written down: what was not met is not in it.
func (e *entry) whole() bool { return e.recorded && (e.ended || e.lost) }

// lose notes that a part of the chain is lost: nothing more will be met.
func (e *entry) lose() { e.lost, e.recorded, e.ahead = true, false, 0 }

func (s *Server) allWhole() bool {
	for _, e := range s.keys {
		if !e.whole() {
			return false
		}
	}
	return true
}

// followAll follows all chains to their ends, in the order of their keys.
func (s *Server) followAll() { s.follow(s.sorted(), -1) }

// nodeHead reads header and key of a node.
func (s *Server) nodeHead(l layout.Location) (header layout.Word, key uint64, err error) {
	p, ok := s.space.Place(l.Handle)
	if !ok {
		return 0, 0, errLost
	}
	if err := s.reach(p.Server); err != nil {
		return 0, 0, err
	}
	o := &s.walk.ops[0]
	s.fab.Read(o, s.memory[p.Server].target(0, p.Offset), headAt, layout.HeaderLen+layout.KeyLen)
	if err := s.fab.Do(s.deadline(), o); err != nil {
		return 0, 0, errors.Join(errDown, err)
	}
	var b [layout.HeaderLen + layout.KeyLen]byte
	if err := s.fab.MR().ReadAt(b[:], headAt); err != nil {
		return 0, 0, err
	}
	return layout.HeaderOf(b[:]), binary.LittleEndian.Uint64(b[layout.HeaderLen:]), nil
}
