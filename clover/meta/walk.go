package meta

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
)

// chains holds the keys and the chains of their nodes, as far as the server has followed them.
type chains struct {
	pool
	keys  map[uint64]*entry
	slots []uint32 // free slots
	// unopened are the entries of keys that could not be opened: see erase.
	unopened []*entry
	// sweepDue makes the server follow all chains; sweepAt is the earliest time of the next sweep.
	sweepDue bool
	sweepAt  clock.Time
}

// entry is what the server knows of one key.
type entry struct {
	key  uint64
	slot uint32
	// at is the newest node that the server has seen. opened is the first node.
	at, opened layout.Location
	// passed are the nodes before at that are not retired yet.
	passed []layout.Location
	// recorded: the directory names at. mirrored: the record's mirror is up to date.
	recorded, mirrored bool
	// ended: when the server followed the chain last, it reached the end.
	ended bool
	// dead: the chain ends in a tombstone. lost: a part of the chain was in memory that is lost.
	dead, lost bool

	// ahead is how many reported nodes the server has not reached in the chain; closing: one of
	// them is a tombstone. reported are these nodes, and some that it has reached: see
	// freeAbsorbed.
	ahead    int
	closing  bool
	reported []layout.Location
	// waiting: the entry is in walker.behind. seen is the value of at during the last catchUp.
	waiting bool
	seen    layout.Location
	turn    uint64 // number of the last call of advance that touched the entry
}

// walker is memory for following several chains at a time, and the reports and headers that the
// server has collected.
type walker struct {
	ops  [lanes]remotemem.Op
	errs [lanes]error // of the lanes' header READs
	// bulk is a separate operation, because reach may use it while the operations of lanes are in
	// flight.
	bulk  remotemem.Op
	lanes [lanes]*entry
	way   int

	// hints are the reports in the order of their arrival; the first followed of them are done.
	// batch are the reports that are being followed.
	hints, batch []hint
	followed     int
	successors   map[layout.Location]layout.Location
	behind       []*entry
	turn         uint64

	touched, closing []*entry // memory of advance and catchUp
}

// startHeader posts the READ of a node's header on lane i.
func (s *chains) startHeader(i int, at layout.Location) error {
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

// nextWay chooses the connections to a server in turn, because each connection bounds the READs in
// flight.
func (s *chains) nextWay() int {
	s.walk.way++
	return s.walk.way
}

// waitHeaders waits for the headers of the first n lanes.
func (s *chains) waitHeaders(n int) {
	deadline := s.deadline()
	s.lend()
	defer s.regain()
	for i := range n {
		if s.walk.errs[i] != nil {
			continue
		}
		if err := s.fab.Wait(deadline, &s.walk.ops[i]); err != nil {
			s.walk.errs[i] = errors.Join(errDown, err)
		}
	}
}

// header returns the header that lane i has read.
func (s *chains) header(i int) (layout.Word, error) {
	v, err := s.fab.MR().Load64(headAt + 16*i)
	return layout.Word(v), err
}

// follow follows chains to their ends from the nodes that the server knows, for at most the given
// number of round trips (negative: any number), and retires the nodes that they have passed.
func (s *chains) follow(list []*entry, rounds int) {
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
		for _, e := range part {
			freeAbsorbed(s, e, e.ended)
		}
		s.commit(part)
	}
}

// step moves an entry along its chain by the header that lane i has read, and reports whether the
// chain goes on.
func (s *chains) step(e *entry, i int) bool {
	if err := s.walk.errs[i]; err != nil {
		if errors.Is(err, errLost) {
			e.lose()
		}
		return false
	}
	s.stats.Walked++
	header, err := s.header(i)
	if err != nil || !header.Valid() || header.EntryVersion() != e.at.Version {
		// A linked node is never given out again. So this memory no longer holds a node of the
		// store.
		s.stats.Broken++
		e.at = layout.Location{}
		e.lose()
		return false
	}
	next, more := header.Next()
	switch {
	case header.IsTombstone():
		e.dead, e.ended, e.mirrored = true, true, false
		return false
	case !more:
		// If a node was reported and is not in the chain, its client no longer holds it.
		e.ended, e.ahead = true, 0
		return false
	}
	s.pass(e, next)
	s.stride(e)
	return !e.lost
}

// pass moves an entry to the next node of its chain.
func (s *chains) pass(e *entry, next layout.Location) {
	delete(s.walk.successors, e.at)
	n, ok := s.nodes.held[next.Handle]
	if n.void || !s.exists(next.Handle) {
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
func (s *pool) onServer(l layout.Location, i int) bool {
	p, ok := s.space.Place(l.Handle)
	return ok && p.Server == i
}

// commit writes the directory for entries that have changed, and retires the nodes that they have
// passed. It leaves out entries that are not in the table any more: the nodes of a deleted key have
// been retired already, and its slot may belong to another key.
func (s *chains) commit(list []*entry) {
	var room [lanes]*entry
	for part := range slices.Chunk(list, lanes) {
		kept := room[:0]
		for _, e := range part {
			if s.keys[e.key] == e {
				kept = append(kept, e)
			}
		}
		s.record(kept)
		s.mirror(kept)
		for _, e := range kept {
			s.settle(e)
		}
	}
}

// record writes the records of at most lanes entries that have moved along their chain, or whose
// keys were opened, deleted or lost.
func (s *chains) record(list []*entry) {
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
		started[i] = s.startRecord(i, p, s.recordOf(e))
	}
	waitRecords(s, started[:len(list)])
	for i, e := range list {
		e.recorded = e.recorded || started[i]
	}
}

// waitRecords waits for the WRITEs on the lanes that were started, and clears started for those that
// have failed.
func waitRecords(s *chains, started []bool) {
	deadline := s.deadline()
	s.lend()
	defer s.regain()
	for i := range started {
		started[i] = started[i] && s.fab.Wait(deadline, &s.walk.ops[i]) == nil
	}
}

// recordOf makes the record of an entry; the zero record if its key was deleted.
func (s *chains) recordOf(e *entry) layout.KeyRecord {
	switch p, _ := s.space.Place(e.at.Handle); {
	case e.lost:
		return layout.KeyRecord{Key: e.key, Lost: true}
	case e.dead:
		return layout.KeyRecord{}
	default:
		return layout.KeyRecord{Key: e.key, At: e.at, Generation: uint32(s.memory[p.Server].generation) & layout.MaxStamp}
	}
}

// mirrorOf makes the mirror of an entry's record.
func mirrorOf(e *entry) layout.KeyRecord {
	if e.dead && !e.lost {
		return layout.KeyRecord{}
	}
	return layout.KeyRecord{Key: e.key, Lost: true}
}

// startRecord posts the WRITE of a record or of a mirror on lane i.
func (s *chains) startRecord(i int, p layout.Place, rec layout.KeyRecord) bool {
	var b [layout.RecordLen]byte
	rec.Put(b[:])
	if s.fab.MR().WriteAt(b[:], recordAt+i*layout.RecordLen) != nil {
		return false
	}
	o := &s.walk.ops[i]
	s.fab.Write(o, s.memory[p.Server].target(0, p.Offset), recordAt+i*layout.RecordLen, layout.RecordLen)
	return s.fab.Start(o) == nil
}

// mirror writes the mirrors of at most lanes entries. A mirror changes only when its key is opened
// or deleted.
func (s *chains) mirror(list []*entry) {
	started := [lanes]bool{}
	for i, e := range list {
		p, ok := s.space.Mirror(int(e.slot))
		switch {
		case e.mirrored:
		case !ok:
			e.mirrored = true
		case s.reach(p.Server) == nil:
			started[i] = s.startRecord(i, p, mirrorOf(e))
		}
	}
	waitRecords(s, started[:len(list)])
	for i, e := range list {
		e.mirrored = e.mirrored || started[i]
	}
}

// settle retires the nodes that the chain of an entry has passed, when the directory does not name
// them any more.
func (s *chains) settle(e *entry) {
	if !e.recorded || !e.mirrored {
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

// forget removes a key from the table.
func (s *chains) forget(e *entry) {
	if s.keys[e.key] != e {
		return
	}
	delete(s.keys, e.key)
	if s.format.Keyed {
		// if nodes have no keys, the old shortcut of the slot could lead to the value of another
		// key
		s.slots = append(s.slots, e.slot)
	}
}

const sweepPause = 20 * time.Millisecond

// sweep follows all chains, unless it did so less than sweepPause ago.
func (s *chains) sweep() {
	if s.rt.Now() < s.sweepAt {
		return
	}
	s.followAll()
	s.sweepAt = s.rt.Now().Add(sweepPause)
	s.sweepDue = s.sweepDue || !s.allWhole() // a memory server did not answer
}

// whole reports that the server has followed the chain of an entry to its end, and that the
// directory is up to date. A node that the server did not see then is not in the chain.
func (e *entry) whole() bool { return e.recorded && (e.ended || e.lost) }

// lose marks an entry as lost: its chain is not followed any further.
func (e *entry) lose() { e.lost, e.recorded, e.ahead = true, false, 0 }

func (s *chains) allWhole() bool {
	for _, e := range s.keys {
		if !e.whole() {
			return false
		}
	}
	return true
}

// followAll follows all chains to their ends, in the order of their keys.
func (s *chains) followAll() { s.follow(s.sorted(), -1) }

// nodeHead reads header and key of a node.
func (s *chains) nodeHead(l layout.Location) (header layout.Word, key uint64, err error) {
	p, ok := s.space.Place(l.Handle)
	if !ok {
		return 0, 0, errLost
	}
	if err := s.reach(p.Server); err != nil {
		return 0, 0, err
	}
	o := &s.walk.ops[0]
	s.fab.Read(o, s.memory[p.Server].target(0, p.Offset), headAt, layout.HeaderLen+layout.KeyLen)
	deadline := s.deadline()
	s.lend()
	err = s.fab.Do(deadline, o)
	s.regain()
	if err != nil {
		return 0, 0, errors.Join(errDown, err)
	}
	var b [layout.HeaderLen + layout.KeyLen]byte
	if err := s.fab.MR().ReadAt(b[:], headAt); err != nil {
		return 0, 0, err
	}
	return layout.HeaderOf(b[:]), binary.LittleEndian.Uint64(b[layout.HeaderLen:]), nil
}
