package fusee

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Standby waits until the master of a store has died or has stopped to respond, and takes its
// place. Master and standby write words into the memory servers. These words show each of them that
// the other is alive, and show the master which view the standby knows.
//
// Two masters never change a store at the same time, even if each of them reaches only a part of
// the memory servers:
//
//   - The standby takes charge only if it has read the words of at least half of the members of the
//     last view that it knows. It ends the connections of the former master there.
//   - A master with a standby goes on with fewer servers only if the standby has seen the new view,
//     or if more than half of the members of each view that the standby may know are among these
//     servers. These views are the one with which the master went on last, and those that it has
//     announced since then.
//
// A master retires a standby that is silent, if all members answer. Then the master goes on alone.
type Standby struct {
	// Counted, if not nil, is called when the standby sees for the first time that the master
	// counts on it: the standby's number is in the master's word. Before that the standby does not
	// take charge, even if the master is silent.
	Counted func()

	m *Master
	// known is the last view that this standby has seen.
	known layout.View
	// reigns has the words by which the master shows that it is alive, as the servers had them
	// last. heard is when one of these words was last seen to change. counted is true if the
	// changed word had the number of this standby: then the master counts on this standby. beats
	// counts the signs of life that this standby has written.
	reigns  [layout.MaxServers]uint64
	heard   clock.Time
	counted bool
	beats   uint32
}

// silence is how many leases a master may be silent before its standby takes charge.
const silence = 4

// OpenStandby makes the standby of a store that has a master. cfg has the meaning that it has for a
// master. The leases of the standby and of the master should be equal.
func OpenStandby(cfg Config, deadline clock.Time) (*Standby, error) {
	m, err := newMaster(cfg)
	if err != nil {
		return nil, err
	}
	m.c.mem.awaits = true
	if err := m.c.start(cfg, deadline); err != nil {
		return nil, err
	}
	m.c.mem.exempt, m.c.mem.managed, m.c.mem.pulsate = true, true, nil
	m.watch(m.c.mem.rt.Now())
	return &Standby{m: m, known: m.c.mem.view, heard: m.c.mem.rt.Now()}, nil
}

// Run waits until the master is silent, and then takes its place. It returns nil and no error when
// the context has ended. It returns ErrDeposed when the master has retired this standby, or has a
// larger number than this standby: then the caller may open another one, which has a larger number
// than that master.
func (s *Standby) Run() (*Master, error) {
	for {
		takes, err := s.step()
		if err == nil && takes {
			err = s.take()
		}
		switch {
		case errors.Is(err, verbs.ErrClosed):
			return nil, nil
		case err != nil:
			return nil, errors.Join(err, s.Close())
		case takes:
			return s.m, nil
		}
		s.m.c.mem.rt.Sleep(s.m.c.mem.cfg.Lease / 4)
	}
}

// Super returns the superblock, which describes the store.
func (s *Standby) Super() layout.Superblock { return s.m.c.space.super }

// Close ends the connections.
func (s *Standby) Close() error { return s.m.c.Close() }

// step writes the standby's sign of life, and the newest view that the standby knows, to all
// members. It reads the master's sign of life and the view that each of them has. takes is true if
// the master is silent and the standby may take charge.
func (s *Standby) step() (takes bool, err error) {
	c := s.m.c
	began := c.mem.rt.Now()
	if s.m.notice(began) {
		s.heard = began
	}
	answers := 0
	for range layout.MaxServers {
		// If round finds a newer view, the standby writes its words to all members of that view.
		was := s.known
		if answers, err = s.round(); err != nil || s.known == was {
			break
		}
	}
	if s.m.notice(c.mem.rt.Now()) {
		s.heard = c.mem.rt.Now()
	}
	return err == nil && s.counted && began >= s.heard.Add(silence*c.mem.cfg.Lease) && halfOf(s.known, answers), err
}

// round writes the standby's words to all members of the view and reads theirs. It returns the
// number of members that answer.
func (s *Standby) round() (answers int, err error) {
	c, view := s.m.c, s.known
	for i := range c.mem.servers(view) {
		s.m.notice(c.mem.rt.Now())
		s.beats++
		if !c.mem.fab.Connected(i) { // the server may have lost its memory and become a member again
			if _, err := c.mem.peek(i, s.known.As(layout.NoView), c.mem.rt.Now().Add(c.mem.cfg.Lease/4)); errors.Is(err, verbs.ErrClosed) {
				return 0, err
			}
		}
		t, err := c.mem.exchange(i, layout.StandbyWord, []uint64{layout.Beat(c.mem.id, s.beats), uint64(s.known)}, c.mem.rt.Now().Add(c.mem.cfg.Lease/4))
		switch {
		case c.mem.fenced:
			return 0, ErrDeposed
		case errors.Is(err, verbs.ErrClosed):
			return 0, err
		case err != nil:
			continue
		case t.view.State() == layout.Gone:
			return 0, errGone
		case t.master > c.mem.id: // a standby can take the place only of a master with a smaller number
			return 0, ErrDeposed
		}
		if t.view.Newer(s.known) {
			s.known = t.view
		}
		if answers++; t.reign != s.reigns[i] {
			s.reigns[i], s.heard, s.counted = t.reign, c.mem.rt.Now(), uint32(t.reign>>32) == c.mem.id
			if s.counted && s.Counted != nil {
				s.Counted()
				s.Counted = nil
			}
		}
	}
	return answers, nil
}

// take takes charge of the store: the standby becomes the master, and changes the view.
func (s *Standby) take() error {
	m := s.m
	m.takes = true
	m.c.mem.view, m.c.mem.newer = s.known, s.known
	m.usable = s.known
	m.standby.agreed(s.known)
	m.watch(m.c.mem.rt.Now())
	return m.persist()
}

// halfOf reports whether n members are at least half of the members of a view.
func halfOf(v layout.View, n int) bool { return 2*n >= v.Members() }

// enough checks whether a standby that takes charge may go on with the members of the view `next`.
// It returns nil if these are at least half of the members of the last view, and the store survives
// with them: then no other master can go on with the other members. Otherwise it returns an error,
// because the former master may go on with the missing members. If m is no standby that takes
// charge now (m.takes is false), enough returns nil.
func (m *Master) enough(next layout.View) error {
	if m.takes && (!halfOf(m.c.mem.newer, next.Members()) || !m.c.space.super.Shape.Survives(next)) {
		return fmt.Errorf("%w: %d of %d memory servers answer the standby; the former master may have the others", kv.ErrTimeout, next.Members(), m.c.mem.newer.Members())
	}
	return nil
}

// Reign runs masters on a host. The first master is m, or the one that the standby s becomes; if
// both are nil, Reign opens a standby first. Reign calls ready, unless it is nil, with each master
// that has taken charge, before it runs. When another master has taken the place of this one, Reign
// calls `again`. If that returns true, Reign runs a standby of the other master, which may become
// the next master on this host.
//
// Reign returns nil when the context has ended. It does not become the standby of another store
// than that of the first master: it returns an error when such a store was made.
func Reign(cfg Config, m *Master, s *Standby, again func() bool, ready func(*Master)) error {
	generation := uint64(0)
	for {
		if m == nil {
			var err error
			if s == nil {
				if s, err = OpenStandby(cfg, cfg.Context.Runtime().Now().Add(changePatience)); errors.Is(err, kv.ErrTimeout) {
					continue
				}
			}
			if err == nil && generation != 0 && generation != s.Super().Generation {
				return errors.Join(errFormatted, s.Close())
			}
			if err == nil {
				generation = s.Super().Generation
				m, err = s.Run()
			}
			if s = nil; err == nil && m == nil || errors.Is(err, verbs.ErrClosed) {
				return nil
			}
			if m == nil && errors.Is(err, ErrDeposed) {
				continue
			}
			if err != nil {
				return err
			}
		}
		generation = m.Super().Generation
		if ready != nil {
			ready(m)
		}
		err := m.Run()
		if !errors.Is(err, ErrDeposed) || !again() {
			return err
		}
		if err := m.Close(); err != nil {
			return err
		}
		m = nil
	}
}
