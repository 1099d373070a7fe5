package fusee

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
)

// heartbeat are the words of a memory server by which the master and its standby show each other that
// they are alive, and which view they know.
type heartbeat struct {
	// standby is the sign of life of the standby (layout.Beat), and seen the last view that the
	// standby knows.
	standby uint64
	seen    layout.View
	// reign is the sign of life of the master (layout.Beat). It contains the client number of the
	// master's standby. view is the view that the server has.
	reign uint64
	view  layout.View
	// master is the number of the last master that has claimed the server.
	master uint32
}

const heartbeatLen = layout.MasterWord + 8 - layout.StandbyWord

// exchange writes words to a server, and then reads the server's words about master and standby
// (heartbeat), in the same round trip. If the server's memory has no view, which means that the
// memory was lost, the error is errReborn.
func (m *memory) exchange(i int, at uint64, words []uint64, deadline clock.Time) (t heartbeat, err error) {
	var raw []byte
	for _, w := range words {
		raw = binary.LittleEndian.AppendUint64(raw, w)
	}
	if err := m.put(raw, atTold); err != nil {
		return t, err
	}
	if err := m.fab.Open(i, deadline); err != nil {
		// Without a connection the address and the R_Key of the target are not known.
		return t, err
	}
	var write, read remotemem.Op
	m.fab.Write(&write, m.target(i, at), atTold, len(raw))
	m.fab.Read(&read, m.target(i, layout.StandbyWord), atHeartbeats+i*heartbeatLen, heartbeatLen)
	if err := m.fab.Do(deadline, &write, &read); err != nil {
		return t, err
	}
	b, err := m.bytes(nil, atHeartbeats+i*heartbeatLen, heartbeatLen)
	if err != nil {
		return t, err
	}
	word := func(at uint64) uint64 { return binary.LittleEndian.Uint64(b[at-layout.StandbyWord:]) }
	t = heartbeat{
		standby: word(layout.StandbyWord), seen: layout.View(word(layout.SeenWord)), reign: word(layout.ReignWord), view: layout.View(word(layout.ViewWord)),
		master: uint32(word(layout.MasterWord)),
	}
	switch {
	case !t.view.Valid(len(m.links)):
		return t, errHostile
	case t.view.State() == layout.NoView:
		return t, errReborn
	}
	return t, nil
}

// standbyState is what a master knows of its standby, and shows it.
type standbyState struct {
	// number is the client number of the standby on which the master counts (see Master.Counted); 0
	// means that there is none. since is when that standby has shown last that it is alive.
	number uint32
	since  clock.Time
	// words[i] is the sign of life of a standby that the master has read last from server i.
	// known[i] is true if the master has read it there at least once.
	words [layout.MaxServers]uint64
	known [layout.MaxServers]bool
	// base is the view with which the master went on last (see agreed). given are views with other
	// members that the master has announced since then. The standby may know any of them.
	base  layout.View
	given []layout.View
	// beats counts the signs of life of the master, which the standby reads.
	beats uint32
}

// agreed is called when the master goes on with view v.
func (s *standbyState) agreed(v layout.View) { s.base, s.given = v, s.given[:0] }

// announced notes that the standby may know view v. It is called before the master writes v to
// servers, where the standby may read it.
func (s *standbyState) announced(v layout.View) {
	if !slices.ContainsFunc(append(s.given, s.base), v.Same) {
		s.given = append(s.given, v)
	}
}

// hear handles the sign of life of a standby that the master has read from server i at the time
// now. A word that has not changed since the master began may be that of a standby that died
// before. While the master counts on a standby (needs its agreement, see Master.Counted), it
// ignores the signs of life of any other standby. The reason is that the first standby may be alive
// and only separated from the master: then it may take charge of the other half of the servers. The
// master counts on another standby only after it has retired the first (ended its connections at
// all members, see retire). A standby that takes charge counts on no other
// standby before it has written its first view in the state Settled: until then no other standby
// may take its place, and it needs no agreement.
func (m *Master) hear(i int, t heartbeat, now clock.Time) {
	s := &m.standby
	was, known := s.words[i], s.known[i]
	if s.words[i], s.known[i] = t.standby, true; !known || was == t.standby || m.takes || uint32(t.standby>>32) == m.c.mem.id {
		return
	}
	switch number := uint32(t.standby >> 32); {
	case s.number == 0:
		s.number = number
		if m.Counted != nil {
			m.Counted(number)
		}
	case s.number != number:
		return
	}
	s.since = now
}

// retireAfter is how many leases a standby must be silent before the master retires it.
const retireAfter = 8

// retire ends the connections of a standby that is silent, at all members. The master calls it when
// all members answer. After that the standby cannot connect to any of them, so it does not take
// charge.
func (m *Master) retire() error {
	s := &m.standby
	if s.number == 0 || m.c.mem.rt.Now() < s.since.Add(retireAfter*m.c.mem.cfg.Lease) {
		return nil
	}
	end := m.c.mem.rt.Now().Add(max(m.c.mem.cfg.Lease/4, minPatience))
	for i := range m.c.mem.servers(m.c.mem.view) {
		if err := m.c.mem.fence(m.c.mem.cfg.Servers[i], s.number, end); err != nil {
			return err
		}
	}
	if s.number = 0; m.Counted != nil {
		m.Counted(0)
	}
	return nil
}

// errAlone: the standby has not seen the master's new view, and the members of this view are not
// more than half of the former members.
var errAlone = errors.New("the standby does not answer, and too few memory servers do: it may have taken charge of the others")

// outvoted reports whether the standby cannot take charge without a member of next: of each view
// that the standby may know, less than half of the members are outside of next. A member that has
// lost its memory does not count for the standby, because the server has no words of the store now.
func (s *standbyState) outvoted(next layout.View, lost func(server int) bool) bool {
	for _, v := range append(s.given, s.base) {
		n := 0
		for i := range layout.MaxServers {
			if v.Has(i) && (next.Has(i) || lost(i)) {
				n++
			}
		}
		if v != 0 && 2*n <= v.Members() {
			return false
		}
	}
	return true
}

// rollback gives up the views that attempts have prepared since the last usable view: the next attempt
// may have all members of that view. Repairs by these attempts do no harm: no client has seen them,
// and the next attempt repairs all members again. The view of the next attempt has a later epoch
// than theirs, because a server may have one of their views.
func (m *Master) rollback() {
	m.standby.announced(m.usable) // the standby may have seen this view
	m.c.mem.view, m.c.mem.newer = m.usable, m.usable.WithEpoch(m.c.mem.newer.Epoch())
}

// agreePatience is how long a master waits for its standby to see a new view. After that the master
// asks absent servers again, and makes another view. The time is long because a standby that has
// just started does not look for newer views until it knows which members of its first view are
// absent.
const agreePatience = 3 * time.Second

// agree decides whether the master may go on with the view `next`, which all members of `next`
// have. The standby takes charge if half of the members of the last view that it knows answer. So
// the master goes on only if the standby has seen `next`, or if the servers that are no members of
// `next` are too few for the standby to take charge. Otherwise agree returns errAlone.
func (m *Master) agree(next layout.View) error {
	s, deadline := &m.standby, m.c.mem.rt.Now().Add(agreePatience)
	for s.number != 0 && !s.outvoted(next, func(i int) bool { return m.signs[i].lost }) {
		for i := range m.c.mem.servers(next) {
			t, err := m.c.mem.exchange(i, layout.ReignWord, m.standby.beat(), deadline)
			if m.c.mem.fenced {
				return ErrDeposed
			}
			if err != nil {
				return errors.Join(errAlone, err)
			}
			if m.hear(i, t, m.c.mem.rt.Now()); t.seen == next && uint32(t.standby>>32) == s.number {
				s.agreed(next)
				return nil
			}
		}
		if m.c.mem.rt.Now() >= deadline {
			return errAlone
		}
		m.c.mem.rt.Sleep(m.c.mem.cfg.Lease / 16)
	}
	s.agreed(next)
	return nil
}

// beat returns the next sign of life of the master, as the word that it writes to the servers.
func (s *standbyState) beat() []uint64 {
	s.beats++
	return []uint64{layout.Beat(s.number, s.beats)}
}
