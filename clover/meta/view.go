package meta

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/lease"
)

// The view is the set of memory servers whose copies count. It changes when a server has lost its
// memory, and when a server has not answered for half a lease while another one has. A server whose
// NIC serves data but whose memory service ends no connections during a change, or answers no
// questions (see hung.go), counts as one that does not answer. The view also changes when a server
// that is out answers again while the memory services of the others answer.
//
// During a change no client works. Every client must say hello again, and gets the answer when the
// change is over. The memory servers end all connections of clients. A server that goes out without
// having lost its memory may still answer clients that reach it. So the change waits until no
// client has a lease. Then the servers that have lost their memory or were out (their copies did
// not count) are filled from the others, and the superblocks get the new view. A metadata server
// that restarts takes the highest view.
//
// A server does not go out if it has the only copy of a node. Then the store waits for the server.
// Nodes whose copies are all lost are lost, as in a store without copies.

// change is a change of the view in progress.
type change struct {
	// fence ends the connections of all clients. until is when no client has a lease any more.
	fence *lease.Fence
	until clock.Time
	// asked is the time since which the change waits for the memory services; see breakUnserved.
	asked clock.Time
	// again is true if an attempt to carry out the change has failed. That attempt may have written
	// records, but only on the servers whose copies it counted.
	again bool
}

// membership decides which servers' copies count, and changes the view.
type membership struct {
	mem    *memories
	pool   *pool
	chains *chains
	// probeDue is true if watch and watchMemory must read the superblock of every memory server. An
	// idle connection does not show that its server has crashed.
	probeDue bool
	// change is the change of the view that is in progress; nil means none. probeAt is when the next
	// probe of a store with copies is due. backAt is the earliest time of the next attempt to bring
	// servers back.
	change  *change
	probeAt clock.Time
	backAt  clock.Time
	// services asks, before a change of the view brings servers back, whether the memory services
	// run on the servers whose copies count.
	services inquiry
	// watched has what is known of the memory service of each server, if the store has copies.
	watched []watched
}

// wait waits until no inquiry goes on.
func (s *membership) wait() {
	s.services.wait(s.mem)
	for i := range s.watched {
		s.watched[i].wait(s.mem)
	}
}

// probe returns the interval at which the metadata server checks whether the memory servers answer.
func (c *Config) probe() time.Duration { return max(c.Lease/4, keepEvery) }

// watch does the work of watchMemory for a store with copies.
func (s *membership) watch(now clock.Time) {
	probe := s.probeDue || now >= s.probeAt
	if probe {
		s.probeDue, s.probeAt = false, now.Add(s.mem.cfg.probe())
	}
	if s.watchServices(now) != nil {
		return // the device is closed
	}
	due, back := s.change != nil, false
	for i := range s.mem.memory {
		m := &s.mem.memory[i]
		if probe && !m.out && !m.blank && s.mem.connected(i) {
			_ = s.mem.probe(i) // if the READ fails, the connection ends
		}
		if !s.mem.connected(i) && now >= m.retryAt {
			s.look(i)
		}
		if m.out {
			back = back || s.mem.connected(i)
			s.markOut(i)
			continue
		}
		due = due || m.blank
	}
	s.noteSilence()
	for i := range s.mem.memory {
		due = due || s.isSilent(i)
	}
	if !due && (!back || !s.mayBringBack(now)) {
		return
	}
	if s.change == nil {
		s.begin(now)
	}
	if s.tryChange() == nil {
		s.change = nil
	}
	s.pool.fences.Leave(s.mem.memory.away())
}

// noteSilence notes, for each server whose copies count, since when it has not answered while
// another server has (memory.since). If no server answers, that says nothing about a single server:
// the metadata server's own link may be cut. When one server then answers again, noteSilence sets
// memory.since of the others to the present time: earlier failed attempts to reach them say nothing
// about them, and one attempt may take half a lease. Otherwise the copies on these servers would no
// longer count before the metadata server has tried to reach them again.
func (s *membership) noteSilence() {
	now, answers := s.mem.rt.Now(), false
	for i := range s.mem.memory {
		answers = answers || s.mem.connected(i) && !s.mem.memory[i].out
	}
	for i := range s.mem.memory {
		switch m := &s.mem.memory[i]; {
		case m.out || s.mem.connected(i):
			m.since = 0
		case m.since == 0 || !answers || !s.mem.answering:
			m.since = now
		}
	}
	s.mem.answering = answers
}

// look tries to connect to a server. If the server's copies count, look also finds out whether the
// server has lost its memory. Otherwise look clears memory.marked, so that markOut marks the
// superblock again.
func (s *membership) look(i int) {
	m := &s.mem.memory[i]
	if !m.out && !m.blank {
		_ = s.mem.reach(i) // the outcome is in m
		return
	}
	if m.marked = 0; s.mem.openWays(i, s.mem.rt.Now().Add(s.mem.reachTime())) == nil {
		_, _ = s.mem.superblock(i) // if the READ fails, the connection ends: such a server cannot be filled
	}
	m.retryAt = s.mem.rt.Now().Add(max(downPause, 4*s.mem.reachTime()))
}

// markOut writes the view to the superblock of a server that is out and answers. Filling this
// server takes time, and may have to wait. If meanwhile the servers that count lose their memory,
// and the metadata server crashes, only this superblock says that the copies on this server are
// old.
func (s *membership) markOut(i int) {
	if m := &s.mem.memory[i]; m.marked != s.mem.view && s.mem.connected(i) && s.mem.writeOwner(i) == nil {
		m.marked = s.mem.view
	}
}

// mayBringBack reports whether a change may begin that only brings servers back. Such a change is
// not urgent. Once it has begun, no client works until the memory service of each server whose
// copies count has ended the connections of all clients. So each of these services must first
// answer a request: a server whose service does not run may still serve data over the connections
// that it has. An inquiry asks the services. Its outcome comes later, so mayBringBack returns false
// until a later call finds it.
func (s *membership) mayBringBack(now clock.Time) bool {
	if now < s.backAt {
		return false
	}
	switch ran, fresh, known := s.services.take(now); {
	case known && fresh && ran:
		return true
	case known && fresh:
		s.backAt = now.Add(max(downPause, 4*s.mem.reachTime()))
	default:
		var counted []netip.Addr
		for i := range s.mem.memory {
			if !s.mem.memory[i].out {
				counted = append(counted, s.mem.cfg.Servers[i])
			}
		}
		s.services.begin(s.mem, s.mem.reachTime(), counted...)
	}
	return false
}

// begin begins a change of the view: it fences all clients, and makes them say hello again.
func (s *membership) begin(now clock.Time) {
	s.change = &change{fence: s.pool.fenceTo(s.pool.nextID), until: now, asked: now}
	for _, cl := range s.pool.clients {
		cl.stale = true
		s.change.until = max(s.change.until, cl.heard.Add(s.mem.cfg.Lease))
	}
}

// tryChange makes the change of the view if that is possible now. Otherwise it returns an error,
// and watch calls it again later.
func (s *membership) tryChange() error {
	if err := s.breakUnserved(); err != nil {
		return err
	}
	n := len(s.mem.memory)
	away, up := make([]bool, n), make([]bool, n)
	for i := range s.mem.memory {
		up[i] = s.mem.connected(i)
		away[i] = !up[i]
	}
	s.pool.fences.Leave(away)
	if !s.pool.fences.Over(s.change.fence) {
		return errDown
	}
	for i := range s.mem.memory {
		m := &s.mem.memory[i]
		up[i] = up[i] && (!m.out || s.pool.fences.Idle(i)) && s.mem.renewWays(i, s.mem.rt.Now().Add(s.mem.reachTime())) == nil
		if !up[i] || m.out || m.blank {
			continue
		}
		switch err := s.mem.verify(i); {
		case errors.Is(err, errLost):
			m.blank = true
		case err != nil:
			up[i] = false
		}
	}
	good := func(i int) bool { return up[i] && !s.mem.memory[i].out && !s.mem.memory[i].blank }
	silent := func(i int) bool { return !up[i] && !s.mem.memory[i].out && !s.mem.memory[i].blank }
	for i := range s.mem.memory {
		if silent(i) && (s.mem.rt.Now() < s.change.until || !s.isSilent(i)) {
			return errDown
		}
	}
	for of := range s.mem.memory {
		copies := s.mem.serversOf(of)
		if !slices.ContainsFunc(copies, good) && slices.ContainsFunc(copies, silent) {
			return errDown // a silent server may have the only copies
		}
	}
	was, lacks := s.mem.memory.away(), make([]bool, n)
	var fill []int
	for i := range s.mem.memory {
		if lacks[i] = !good(i); lacks[i] && up[i] {
			fill = append(fill, i)
		}
	}
	s.mem.memory.setAway(lacks)
	if err := s.settleView(fill, s.change.again); err != nil {
		s.change.again = true
		s.mem.memory.setAway(was)
		return err
	}
	return nil
}

// servicePatience is how long a change waits for a memory service to end connections: the time
// limit of two requests. A service that does not answer for so long counts as one that hangs
// (hung.go).
const servicePatience = 2 * memoryTimeout

// breakUnserved is called during a change. If some of the servers whose copies count have ended the
// clients' connections within servicePatience, it breaks the metadata server's connections to those
// that have not: their memory services do not run, although their NICs still serve data. From then
// on such a server does not answer, because it accepts no connection before its service runs again.
func (s *membership) breakUnserved() error {
	counts := func(i int) bool { return s.mem.connected(i) && !s.mem.memory[i].out }
	served, unserved := false, []int(nil)
	for i := range s.mem.memory {
		switch {
		case !counts(i):
		case s.pool.fences.Idle(i):
			served = true
		default:
			unserved = append(unserved, i)
		}
	}
	now := s.mem.rt.Now()
	if !served || now < s.change.asked.Add(servicePatience) {
		return nil
	}
	s.change.asked = now
	for _, i := range unserved {
		if err := s.mem.breakWays(i); err != nil {
			return err
		}
	}
	return nil
}

// isSilent reports whether a server has not answered for half a lease, while another one has.
func (s *membership) isSilent(i int) bool {
	since := s.mem.memory[i].since
	return since != 0 && s.mem.rt.Now() > since.Add(s.mem.cfg.Lease/2)
}

// away returns a list that has true for each server whose copies do not count.
func (s servers) away() (list []bool) {
	for i := range s {
		list = append(list, s[i].out)
	}
	return list
}

// setAway marks the servers for which list has true as servers whose copies do not count, and all
// others as servers whose copies count.
func (s servers) setAway(list []bool) {
	for i := range list {
		s[i].out = list[i]
	}
}

// serversOf returns the servers that have copies of the nodes of server `of`: `of` itself and those
// after it.
func (s *memories) serversOf(of int) (list []int) {
	for j := range s.space.Backups + 1 {
		list = append(list, (of+j)%len(s.memory))
	}
	return list
}

// isGone reports whether no copy of the nodes of server `of` counts.
func (s *memories) isGone(of int) bool {
	return !slices.ContainsFunc(s.serversOf(of), func(i int) bool { return !s.memory[i].out })
}

// settleView fills the servers that the list fill names from the servers that are not out. Then it
// writes the new view, in which the filled servers count again. No client works meanwhile. Nodes of
// which no copy counts are lost. The keys that need such a node are found before a superblock has
// the new view. If settleView fails, a second call repeats the steps without harm. If `all` is
// true, it also writes the heads (see writeHeads) of the servers that are not filled.
func (s *membership) settleView(fill []int, all bool) error {
	for _, i := range fill { // a metadata server that restarts must not mistake a half-filled server for a part of the store
		if s.mem.memory[i].marked != 0 {
			continue // its superblock says that its copies do not count
		}
		if err := s.mem.writeBulk(i, 0, make([]byte, layout.SuperblockLen)); err != nil {
			return err
		}
	}
	if s.voidGone() {
		if s.chains.followAll(); !s.chains.allWhole() {
			return errDown
		}
		s.pool.orphansAfter = nil // all clients are fenced, so recoverOrphans has no fence to wait for
	}
	for i := range s.mem.memory {
		if all && !s.mem.memory[i].out {
			if err := s.writeHeads(i); err != nil {
				return err
			}
		}
	}
	for _, i := range fill {
		if err := s.writeHeads(i); err != nil {
			return err
		}
		for j := range s.mem.space.Backups + 1 {
			if err := s.pool.fill(i, j); err != nil {
				return err
			}
		}
	}
	return s.writeView(fill)
}

// voidGone looks for servers whose nodes are lost, because every server that has a copy of these
// nodes is out: its copies do not count any more. For each server whose nodes are lost, voidGone
// calls voidServer and forsake. It reports whether there is one.
func (s *membership) voidGone() (gone bool) {
	for of := range s.mem.memory {
		if s.mem.isGone(of) {
			gone = true
			s.pool.voidServer(of)
			s.chains.forsake(of)
		}
	}
	return gone
}

// writeView begins the next view: the copies on the servers in fill count from then on. It writes
// the superblock of each server whose copies count, and begins a new epoch. If it cannot write one
// of them, the servers in fill stay out.
func (s *membership) writeView(fill []int) error {
	was := s.mem.memory.away()
	for _, i := range fill {
		s.mem.memory[i].out, s.mem.memory[i].generation, s.mem.memory[i].marked = false, s.mem.rt.Rand().Uint64()|1, 0
	}
	s.mem.view = (s.mem.view + 1) % (1 << 24)
	for i := range s.mem.memory {
		if s.mem.memory[i].out {
			continue
		}
		if err := s.mem.writeOwner(i); err != nil {
			s.mem.memory.setAway(was)
			return err
		}
	}
	s.pool.epoch++ // the versions of lost nodes begin again
	s.pool.turnedAt = s.mem.rt.Now()
	for i := range s.mem.memory {
		s.mem.memory[i].blank, s.mem.memory[i].since = false, 0
	}
	s.mem.stats.Losses += uint64(len(fill))
	for _, e := range s.chains.sorted() {
		s.chains.note(e)
	}
	return nil
}

// recover does the work of Server.recover for a store with copies, up to recoverOrphans. All memory
// servers answer.
func (s *membership) recover() error {
	var fill []int
	for i := range s.mem.memory {
		m := &s.mem.memory[i]
		if m.out = m.out || m.generation == 0; m.out {
			fill = append(fill, i)
		}
	}
	taken := make(map[uint32]bool)
	for of := range s.mem.memory {
		if err := s.readCopies(of, taken); err != nil {
			return err
		}
	}
	for of := range s.mem.memory {
		if !s.mem.isGone(of) {
			continue
		}
		known, err := s.readMirrors(of, taken)
		if err != nil {
			return err
		}
		if !known {
			if err := s.readOld(of, taken); err != nil {
				return err
			}
		}
	}
	s.chains.slots = slices.DeleteFunc(s.chains.slots, func(slot uint32) bool { return taken[slot] })
	if err := s.pool.holdAll(); err != nil {
		return err
	}
	for _, e := range s.chains.keys {
		s.pool.linked(e.at)
	}
	s.voidGone()
	if s.chains.followAll(); !s.chains.allWhole() {
		return errDown
	}
	// The old records on a server that is out of the view may be the only ones that name some lost
	// keys. If this metadata server dies while it fills the servers, the next one must find these
	// records, and know that they are old.
	for _, i := range fill {
		if s.mem.memory[i].generation == 0 {
			continue
		}
		if s.markOut(i); s.mem.memory[i].marked != s.mem.view {
			return errDown
		}
	}
	// All records are written again, because their copies may differ, and all shortcuts are
	// emptied, because this incarnation counts epochs from 1 again.
	if err := s.settleView(fill, true); err != nil {
		return err
	}
	s.mem.stats.Recovered = uint64(len(s.chains.keys))
	s.pool.orphans = true
	return nil
}

// readOld reads the copies of the directory records of server `of` when all copies that counted are
// lost and there is no mirror. The servers with the remaining copies are out of the view, so these
// copies are out of date. But they still name most of the lost keys.
func (s *membership) readOld(of int, taken map[uint32]bool) error {
	for j := range s.mem.space.Backups + 1 {
		first, _ := s.mem.space.RecordCopy(of, j)
		if s.mem.memory[first.Server].generation == 0 {
			continue
		}
		if err := s.readLost(of, first, taken); err != nil {
			return err
		}
	}
	return nil
}

// readCopies reads the directory of server `of`, from the first of its copies that is on a server
// whose copies count, and, if the classes share the memory, the table of `of`. It adds the slots of
// the keys to `taken`. A key is lost if its node was in memory that has been formatted since.
func (s *membership) readCopies(of int, taken map[uint32]bool) error {
	if !s.mem.isGone(of) && s.mem.space.Shared {
		if err := s.pool.readTable(of); err != nil {
			return err
		}
	}
	for j := range s.mem.space.Backups + 1 {
		first, _ := s.mem.space.RecordCopy(of, j)
		if s.mem.memory[first.Server].out {
			continue
		}
		return s.readRecords(first, func(n int, rec layout.KeyRecord) {
			e := s.chains.entryOf(rec, uint32(n*s.mem.space.Servers+of))
			taken[e.slot], s.chains.keys[rec.Key] = true, e
		})
	}
	return nil
}
