package fusee

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Master watches the memory servers of a store, and changes its members when one of them has crashed. All
// that it must not forget is in the memory servers (layout.View): so another master can go on after it.
//
// A change has two steps. First the servers that remain get a view that is being prepared, and end all
// connections but those of the master: no request of a client that does not know of the change is
// executed after that, and no READ of a server that does not remain counts once viewLease has passed. Then
// the master makes the replicas of the index alike (see repair), and settles the view.
type Master struct {
	c *Client
	// heard is when each server has answered last: the time at which the master has asked it.
	heard []clock.Time
	// lost are the servers that have another incarnation of their memory.
	lost []bool
	// Changed, if set, is called after each change of the members.
	Changed func(was, now layout.View)
}

// errGrows: the repair after the crash of a server does not know splits, and operations in flight do not
// find out whether a split has moved their keys meanwhile.
var errGrows = errors.New("the index can grow: a master takes only stores that were formatted without Grow")

// OpenMaster makes the master of a store. It changes the view once, so that clients know that there is a
// master.
func OpenMaster(cfg Config, deadline clock.Time) (*Master, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	m := &Master{c: new(Client), heard: make([]clock.Time, len(cfg.Servers)), lost: make([]bool, len(cfg.Servers))}
	m.c.exempt, m.c.managed = true, true
	if err := m.c.start(cfg, deadline); err != nil {
		return nil, err
	}
	if shape := &m.c.super.Shape; shape.Subtables > 1<<shape.Depth {
		return nil, errors.Join(errGrows, m.c.Close())
	}
	now := m.c.rt.Now()
	for i := range m.heard {
		if m.c.missing>>i&1 == 0 {
			m.heard[i] = now
		}
	}
	if m.c.missing == 0 && m.c.view.State() == layout.Settled && m.c.view.Mastered() {
		return m, nil
	}
	return m, m.change(deadline)
}

// View is the view of the store.
func (m *Master) View() layout.View { return m.c.view }

// Close ends the connections. The members remain as they are.
func (m *Master) Close() error { return m.c.Close() }

// Run watches the servers until the context ends, or until the store is lost.
func (m *Master) Run() error {
	every := m.c.cfg.Lease / 4
	for {
		if err := m.Step(); err != nil {
			if errors.Is(err, verbs.ErrClosed) {
				return nil
			}
			return err
		}
		m.c.rt.Sleep(every)
	}
}

// Step asks all members whether they are alive, and changes the members if one has not answered for the
// lease or has lost its memory.
func (m *Master) Step() error {
	m.probe()
	if m.c.fenced {
		return errFenced
	}
	now := m.c.rt.Now()
	for i := range m.heard {
		if m.c.view.Has(i) && (m.lost[i] || now >= m.heard[i].Add(m.c.cfg.Lease)) {
			return m.change(now.Add(changePatience))
		}
	}
	return nil
}

// changePatience bounds the time of one change of the members.
const changePatience = 30 * time.Second

// minPatience is how long a master waits at least for an answer in the middle of a change.
const minPatience = 100 * time.Millisecond

// probe reads the views of all members, each with a patience of its own.
func (m *Master) probe() {
	for i := range m.heard {
		if !m.c.view.Has(i) || m.lost[i] {
			continue
		}
		asked := m.c.rt.Now()
		limit := asked.Add(m.c.cfg.Lease / 4)
		err := m.c.fab.Open(i, limit)
		if err == nil {
			var v layout.View
			if v, err = m.c.viewOf(i, limit); err == nil && v.State() == layout.NoView {
				err = errReborn
			}
		}
		switch {
		case err == nil:
			m.heard[i] = asked
		case errors.Is(err, errReborn):
			m.lost[i] = true
		}
	}
}

// change makes a view of the members that answer, repairs the store there, and settles the view.
func (m *Master) change(deadline clock.Time) error {
	was := m.c.view
	for {
		err := m.attempt(deadline)
		switch {
		case err == nil:
			if m.Changed != nil {
				m.Changed(was, m.c.view)
			}
			return nil
		case m.c.fenced, errors.Is(err, kv.ErrLost), errors.Is(err, verbs.ErrClosed):
			return err
		case m.c.rt.Now() >= deadline:
			return fmt.Errorf("change the members of the store: %w", err)
		}
		m.probe() // perhaps another server has crashed
	}
}

// attempt is one attempt of change.
func (m *Master) attempt(deadline clock.Time) error {
	c := m.c
	now := c.rt.Now()
	before := c.root()
	next := c.newer.Next(func(i int) bool { return !m.lost[i] && now < m.heard[i].Add(c.cfg.Lease) })
	if !c.super.Shape.Survives(next) {
		next = next.As(layout.Gone)
	}
	for i := range c.links {
		if !next.Has(i) {
			if err := c.fab.Break(i); err != nil {
				return err
			}
		}
	}
	limit := min(deadline, now.Add(max(2*c.cfg.Lease, minPatience)))
	c.newer = next // the epoch is used up
	if err := m.announce(next, limit); err != nil {
		return err
	}
	if next.State() == layout.Gone {
		c.view = next
		return errGone
	}
	told := c.rt.Now()
	c.view = next
	c.index = slices.DeleteFunc(c.index, func(i int) bool { return !next.Has(i) })
	last := c.id
	for i, to := range c.cfg.Servers {
		if !next.Has(i) {
			continue
		}
		n, err := memservice.DisconnectOthers(c.cfg.Context, c.cfg.Manager, to, c.id, limit)
		if err != nil {
			return err
		}
		last = max(last, n)
	}
	if rest := told.Add(viewLease).Sub(c.rt.Now()); rest > 0 {
		c.rt.Sleep(rest)
	}
	r := repair{changer: &c.changer, same: c.root() == before, patience: max(2*c.cfg.Lease, minPatience)}
	if err := r.all(); err != nil {
		return err
	}
	if err := c.numberFrom(last, deadline); err != nil {
		return err
	}
	next = next.As(layout.Settled)
	if err := m.announce(next, c.rt.Now().Add(minPatience)); err != nil {
		return err
	}
	c.use(next)
	return nil
}

// announce writes a view to all its members.
func (m *Master) announce(v layout.View, deadline clock.Time) error {
	c := m.c
	if err := c.put(binary.LittleEndian.AppendUint64(nil, uint64(v)), atLog); err != nil {
		return err
	}
	for i := range c.links {
		if v.Has(i) {
			c.write(i, layout.ViewWord, atLog, 8)
		}
	}
	return c.do(deadline)
}
