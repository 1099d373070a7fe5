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

// chains has the keys and the chains of their nodes, as far as the server knows them.
type chains struct {
	mem  *memories
	pool *pool
	keys map[uint64]*entry
	// tidy has the entries whose records must be written.
	tidy  tidier
	slots []uint32 // free slots
	// unopened are the entries of keys that could not be opened, and whose records in the directory
	// erase must still remove or mark as lost.
	unopened []*entry
	// sweepDue is true if the next call of keep must call sweep. sweepAt is the earliest time of
	// that call.
	sweepDue bool
	sweepAt  clock.Time
}

// entry is what the server knows of one key.
type entry struct {
	key  uint64
	slot uint32
	// at is the newest node of the chain that the server knows, from reports (adopt) or because it has
	// followed the chain. opened is the first node of the key or, if this incarnation of the server
	// has found the key in the directory, the node that it found there.
	at, opened layout.Location
	// since is a clock: an append that began after its client had heard it comes after `at`. by is the
	// client that has reported `at`; 0 means that none has.
	since uint64
	by    uint32
	// passed are the nodes before `at` that are not yet retired.
	passed []layout.Location
	// recorded is true if the key's record in the directory is up to date. mirrored is true if the
	// record's mirror is up to date.
	recorded, mirrored bool
	// ended is true if the server reached the end of the chain when it last followed it.
	ended bool
	// last is true if the first copy of node `at` names no successor, so that the server must read
	// the header of the last copy.
	last bool
	// dead is true if the chain ends in a tombstone, or the key could not be opened (unopened).
	// lost is true if a part of the chain was in memory that is lost.
	dead, lost bool

	// reported are the reported nodes that may be the newest one, and some that the server has met
	// in the chain since, in the order of their reports. closing is true if a tombstone was reported.
	reported []reported
	closing  bool
	// due is true if the entry is in tidier.due.
	due bool
	// waiting is true if the entry is in walker.behind. seen is the value of `at` in the last call
	// of catchUp.
	waiting bool
	seen    layout.Location
}

// walker has the memory for following several chains at a time.
type walker struct {
	ops  [lanes]remotemem.Op
	errs [lanes]error // errors of the header READs, by lane
	// bulk is the operation for superblocks, bulk transfers and the appends of `complete`, because
	// reach and complete may need it while the operations of lanes are in flight or hold results.
	bulk  remotemem.Op
	lanes [lanes]*entry // the entries whose chains are being followed
	way   int           // counter of nextWay

	behind []*entry // entries with reported nodes, or an unwritten record; see note

	touched, closing []*entry // lists that advance and catchUp use again in each call
}

// startHeader posts the READ of a node's header into the buffer of lane i. It reads the last copy
// of the node if `last` is true, otherwise the first.
func (s *chains) startHeader(i int, at layout.Location, last bool) error {
	o := &s.mem.walk.ops[i]
	p, err := s.find(at, last)
	if err != nil {
		return err
	}
	s.mem.fab.Read(o, s.mem.memory[p.Server].target(s.mem.walk.nextWay(), p.Offset), headAt+16*i, layout.HeaderLen)
	return s.mem.fab.Start(o)
}

// find returns the place of a node's first copy that counts, or of the last one if `last` is true,
// and makes sure that its server is connected.
func (s *chains) find(at layout.Location, last bool) (layout.Place, error) {
	p, ok := s.mem.space.Place(at.Handle)
	if !ok {
		return p, errLost
	}
	p, err := s.mem.copyOf(p, last)
	if err == nil {
		err = s.mem.reach(p.Server)
	}
	return p, err
}

// nextWay returns a number by which the connections to a server are used in turn, because a
// connection can have only a limited number of READs in flight.
func (w *walker) nextWay() int {
	w.way++
	return w.way
}

// waitHeaders waits until the READs on the first n lanes are complete. Meanwhile the request
// threads may use the tables (lend).
func (s *chains) waitHeaders(n int) {
	deadline := s.mem.deadline()
	s.mem.lend()
	defer s.mem.regain()
	for i := range n {
		if s.mem.walk.errs[i] != nil {
			continue
		}
		if err := s.mem.fab.Wait(deadline, &s.mem.walk.ops[i]); err != nil {
			s.mem.walk.errs[i] = errors.Join(errDown, err)
		}
	}
}

// header returns the header that lane i has read.
func (s *chains) header(i int) (layout.Word, error) {
	v, err := s.mem.fab.MR().Load64(headAt + 16*i)
	return layout.Word(v), err
}

// follow follows the chains of the entries in list, from the nodes that the server knows to the
// ends, and retires the nodes that are superseded. It makes at most `rounds` round trips for each
// group of `lanes` entries; a negative number means no limit.
func (s *chains) follow(list []*entry, rounds int) {
	for part := range slices.Chunk(list, lanes) {
		work := s.mem.walk.lanes[:0]
		for _, e := range part {
			if e.ended, e.last = false, false; !e.lost && !e.dead {
				work = append(work, e)
			}
		}
		for n := 0; len(work) > 0 && (rounds < 0 || n < rounds); n++ {
			for i, e := range work {
				s.mem.walk.errs[i] = s.startHeader(i, e.at, e.last)
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
			if e.ended {
				s.freeReported(e)
			}
		}
		s.commit(part)
	}
}

// step moves an entry to the next node of its chain. Lane i has read the header that names this
// node. step returns true if the chain goes on.
func (s *chains) step(e *entry, i int) bool {
	if err := s.mem.walk.errs[i]; err != nil {
		if errors.Is(err, errLost) {
			e.lose()
		}
		return false
	}
	s.mem.stats.Walked++
	header, err := s.header(i)
	if err != nil || !header.Valid() || header.EntryVersion() != e.at.Version {
		// As long as a node is linked, it is not given out again. So this memory no longer contains
		// the nodes of the store.
		s.mem.stats.Broken++
		e.at = layout.Location{}
		e.lose()
		return false
	}
	next, more := header.Next()
	switch {
	case header.IsTombstone():
		e.dead, e.ended, e.mirrored = true, true, false
		return false
	case !more && s.mem.copied() && !e.last:
		e.last = true // the last copy may name a successor that the first copy does not name yet
		return true
	case !more:
		e.ended = true
		return false
	}
	if e.last && !s.complete(e.at, header) {
		return false
	}
	e.last = false
	s.pass(e, next)
	return !e.lost
}

// pass moves an entry to `next`, the next node of its chain. If that node was in lost memory, the
// key is lost.
func (s *chains) pass(e *entry, next layout.Location) {
	if s.pool.nodes.held.of(next.Handle).void || !s.pool.exists(next.Handle) {
		e.lose()
		return
	}
	s.pool.linked(next)
	e.passed = append(e.passed, e.at)
	s.pool.clock++ // an answer before now had a lower clock
	e.at, e.by, e.since, e.recorded = next, 0, s.pool.clock, false
}

func (s *pool) onServer(l layout.Location, i int) bool {
	p, ok := s.mem.space.Place(l.Handle)
	return ok && p.Server == i
}

// commit writes the records and mirrors of entries that have changed, and retires the nodes that
// they have passed. It leaves out entries that are not in the table any more: the nodes of a
// deleted key are already retired, and its slot may belong to another key.
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

// record writes the records of those entries in list that have moved along their chain, or whose
// keys were opened, deleted or lost. list has at most `lanes` entries.
func (s *chains) record(list []*entry) {
	due := [lanes]bool{}
	for i, e := range list {
		if due[i] = !e.recorded || e.dead && !e.lost; due[i] {
			e.recorded = false
		}
	}
	done := due
	for j := range s.mem.space.Backups + 1 {
		started := [lanes]bool{}
		for i, e := range list {
			p, _ := s.mem.space.RecordCopy(int(e.slot), j)
			if due[i] && !s.mem.memory[p.Server].out {
				started[i] = s.mem.reach(p.Server) == nil && s.startRecord(i, p, s.recordOf(e))
				done[i] = done[i] && started[i]
			}
		}
		wrote := started
		s.waitRecords(wrote[:len(list)])
		for i := range list {
			done[i] = done[i] && wrote[i] == started[i]
		}
	}
	for i, e := range list {
		e.recorded = e.recorded || done[i]
	}
}

// waitRecords waits for the WRITEs on the lanes for which started is true. It sets started to false
// for the WRITEs that have failed.
func (s *chains) waitRecords(started []bool) {
	deadline := s.mem.deadline()
	s.mem.lend()
	defer s.mem.regain()
	for i := range started {
		started[i] = started[i] && s.mem.fab.Wait(deadline, &s.mem.walk.ops[i]) == nil
	}
}

// recordOf returns the record of an entry. It is zero if the key was deleted.
func (s *chains) recordOf(e *entry) layout.KeyRecord {
	switch p, _ := s.mem.space.Place(e.at.Handle); {
	case e.lost:
		return layout.KeyRecord{Key: e.key, Lost: true}
	case e.dead:
		return layout.KeyRecord{}
	default:
		return layout.KeyRecord{Key: e.key, At: e.at, Generation: s.mem.stamp(p.Server)}
	}
}

// mirror returns the mirror of an entry's record. It is zero if the key was deleted.
func (e *entry) mirror() layout.KeyRecord {
	if e.dead && !e.lost {
		return layout.KeyRecord{}
	}
	return layout.KeyRecord{Key: e.key, Lost: true}
}

// startRecord posts the WRITE of a record or a mirror on lane i. It returns false if that fails.
func (s *chains) startRecord(i int, p layout.Place, rec layout.KeyRecord) bool {
	var b [layout.RecordLen]byte
	rec.Put(b[:])
	if s.mem.fab.MR().WriteAt(b[:], recordAt+i*layout.RecordLen) != nil {
		return false
	}
	o := &s.mem.walk.ops[i]
	s.mem.fab.Write(o, s.mem.memory[p.Server].target(0, p.Offset), recordAt+i*layout.RecordLen, layout.RecordLen)
	return s.mem.fab.Start(o) == nil
}

// mirror writes the mirrors of those entries in list whose mirrors are not up to date. A mirror
// changes only when its key is opened or deleted. list has at most `lanes` entries.
func (s *chains) mirror(list []*entry) {
	started := [lanes]bool{}
	for i, e := range list {
		p, ok := s.mem.space.Mirror(int(e.slot))
		switch {
		case e.mirrored:
		case !ok || s.mem.memory[p.Server].out: // a server gets all its mirrors when it comes back
			e.mirrored = true
		case s.mem.reach(p.Server) == nil:
			started[i] = s.startRecord(i, p, e.mirror())
		}
	}
	s.waitRecords(started[:len(list)])
	for i, e := range list {
		e.mirrored = e.mirrored || started[i]
	}
}

// settle retires the nodes that an entry has passed, and removes the key if it is deleted. It does
// so only if the record and the mirror are up to date: then the directory no longer names these
// nodes. If the key is lost, settle calls strip instead.
func (s *chains) settle(e *entry) {
	if !e.recorded || !e.mirrored {
		return
	}
	if e.lost {
		s.strip(e)
		return
	}
	if e.dead { // nothing comes after a tombstone
		s.freeReported(e)
	}
	for _, l := range e.passed {
		s.pool.retire(l)
	}
	e.passed = e.passed[:0]
	if e.dead {
		s.pool.retire(e.at)
		s.forget(e)
	}
}

// forget removes the key of an entry from the table. It frees the key's slot for another key if the
// nodes of this store contain their keys (Format.Keyed).
func (s *chains) forget(e *entry) {
	if s.keys[e.key] != e {
		return
	}
	delete(s.keys, e.key)
	if s.mem.format.Keyed {
		// If nodes have no keys, the slot is not used again: clients that read its old shortcut
		// could take the value of another key for that of their key.
		s.slots = append(s.slots, e.slot)
	}
}

const sweepPause = 20 * time.Millisecond

// sweep follows all chains, unless it has done so less than sweepPause ago.
func (s *chains) sweep() {
	if s.mem.rt.Now() < s.sweepAt {
		return
	}
	s.followAll()
	s.sweepAt = s.mem.rt.Now().Add(sweepPause)
	s.sweepDue = s.sweepDue || !s.allWhole() // if a memory server did not answer, sweep again
}

// whole reports whether the key's record is up to date and the server knows the whole chain: it has
// followed the chain to its end, or knows that a part of the chain is lost. If it has reached the
// end, a node that it did not see is not in the chain.
func (e *entry) whole() bool { return e.recorded && (e.ended || e.lost) }

// lose marks an entry as lost: the server does not follow its chain any further.
func (e *entry) lose() { e.lost, e.recorded = true, false }

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

// nodeHead reads the header and the key of the node l.
func (s *chains) nodeHead(l layout.Location) (header layout.Word, key uint64, err error) {
	p, err := s.find(l, false)
	if err != nil {
		return 0, 0, err
	}
	o := &s.mem.walk.ops[0]
	s.mem.fab.Read(o, s.mem.memory[p.Server].target(0, p.Offset), headAt, layout.HeaderLen+layout.KeyLen)
	if err := s.mem.doLent(o); err != nil {
		return 0, 0, errors.Join(errDown, err)
	}
	var b [layout.HeaderLen + layout.KeyLen]byte
	if err := s.mem.fab.MR().ReadAt(b[:], headAt); err != nil {
		return 0, 0, err
	}
	return layout.HeaderOf(b[:]), binary.LittleEndian.Uint64(b[layout.HeaderLen:]), nil
}
