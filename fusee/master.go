package fusee

import (
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
	// signs says of each server since when it is silent.
	signs []sign
	// words are the views that the servers are known to have, and tried those that the master has tried to
	// put in their place. Any other view is that of another master.
	words, tried []layout.View
	// awake is when the master has noticed last that it is not hung.
	awake clock.Time
	// Changed, if set, is called after each change of the members.
	Changed func(was, now layout.View)
	// Recovered, if set, is called after the master has recovered a client.
	Recovered func(owner uint32)
	// Failed, if set, is called when clients cannot be recovered, once as long as the error is the same. The
	// master tries it again.
	Failed func(err error)
	// failed is the last error.
	failed string
	// wards are the clients that own blocks. nextTend is when the master looks at them again. ended are dead
	// ones whose blocks it has taken over, and has not settled all.
	wards    map[uint32]ward
	nextTend clock.Time
	ended    []uint32
}

// errGrows: the repair after the crash of a server does not know splits, and operations in flight do not
// find out whether a split has moved their keys meanwhile.
var errGrows = errors.New("the index can grow: a master takes only stores that were formatted without Grow")

// sign is what a master knows of the life of a server.
type sign struct {
	// since is the begin of the last READ that the server has answered, or the time since which the master
	// watches. failed counts the READs since then that have failed.
	since  clock.Time
	failed int
	// lost: the server has another incarnation of its memory. dead: it has crashed.
	lost, dead bool
	// claimed: the former master's requests are not executed there any more.
	claimed bool
}

// ErrDeposed means that another master has taken charge of the store. This one changes nothing any more.
var ErrDeposed = errors.New("another master has taken charge of the store")

// deadAfter is how many READs in sequence must fail until a server is taken for crashed.
const deadAfter = 2

// OpenMaster makes the master of a store. It ends the former master first, and changes the view once: so
// that clients know that there is a master, and so that a change which the former one has begun is ended.
func OpenMaster(cfg Config, deadline clock.Time) (*Master, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Lease != 0 && cfg.Lease < MinMasterLease {
		return nil, fmt.Errorf("fusee: a master with a lease of %v: want %v at least", cfg.Lease, MinMasterLease)
	}
	n := len(cfg.Servers)
	m := &Master{c: new(Client), signs: make([]sign, n), words: make([]layout.View, n), tried: make([]layout.View, n)}
	m.c.exempt, m.c.managed = true, true
	if err := m.c.start(cfg, deadline); err != nil {
		return nil, err
	}
	if shape := &m.c.super.Shape; shape.Subtables > 1<<shape.Depth {
		return nil, errors.Join(errGrows, m.c.Close())
	}
	m.watch(m.c.rt.Now())
	return m, m.change(deadline)
}

// watch begins the leases of all servers again.
func (m *Master) watch(now clock.Time) {
	m.awake = now
	for i := range m.signs {
		m.signs[i].since, m.signs[i].failed = now, 0
	}
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

// Step asks all members whether they are alive, and changes the members if one has crashed or has lost its
// memory. If all have answered, it recovers clients that have died.
func (m *Master) Step() error {
	quiet, err := m.probe()
	if err != nil {
		return err
	}
	for i, s := range m.signs {
		if m.c.view.Has(i) && (s.lost || s.dead) {
			return m.change(m.c.rt.Now().Add(changePatience))
		}
		if m.c.view.Has(i) && s.failed > 0 {
			quiet++
		}
	}
	if quiet > 0 {
		return nil
	}
	err = m.tend()
	m.notice(m.c.rt.Now())
	switch {
	case m.c.fenced:
		return ErrDeposed
	case errors.Is(err, verbs.ErrClosed), errors.Is(err, kv.ErrLost):
		return err
	}
	m.report(err) // if a server does not answer, that shows when it is asked again
	return nil
}

// report calls Failed for an error that is not the last one.
func (m *Master) report(err error) {
	was := m.failed
	m.failed = ""
	if err == nil {
		return
	}
	if m.failed = err.Error(); m.failed != was && m.Failed != nil {
		m.Failed(err)
	}
}

// changePatience bounds the time of one change of the members.
const changePatience = 30 * time.Second

// minPatience is how long a master waits at least for an answer in the middle of a change.
const minPatience = 100 * time.Millisecond

// probe reads the views of all members, each with a patience of its own. quiet counts those that have not
// answered and are not dead yet.
func (m *Master) probe() (quiet int, err error) {
	for i := range m.signs {
		s := &m.signs[i]
		if !m.c.view.Has(i) || s.lost || s.dead {
			continue
		}
		asked := m.c.rt.Now()
		m.notice(asked)
		err := m.ask(i, asked.Add(m.c.cfg.Lease/4))
		if m.c.fenced {
			return 0, ErrDeposed
		}
		if now := m.c.rt.Now(); m.notice(now) {
			quiet++ // the answer may have come while the master was hung
			continue
		}
		switch {
		case err == nil:
			s.since, s.failed = asked, 0
		case errors.Is(err, ErrDeposed), errors.Is(err, verbs.ErrClosed):
			return 0, err
		case errors.Is(err, errReborn):
			s.lost = true
		default:
			s.failed++
			n := m.leases(i)
			s.dead = asked >= s.since.Add(time.Duration(n)*m.c.cfg.Lease) && s.failed >= n*deadAfter
			if !s.dead {
				quiet++
			}
		}
	}
	return quiet, nil
}

// lastLeases is how many leases a server may be silent without which the store is lost. There is nothing to
// be won by replacing it early, and its silence may be that of a link which loses packets.
const lastLeases = 8

// leases is how many leases a server may be silent.
func (m *Master) leases(i int) int {
	rest := m.c.view.Next(func(j int) bool { return j != i && !m.signs[j].lost && !m.signs[j].dead })
	if m.c.super.Shape.Survives(rest) {
		return 1
	}
	return lastLeases
}

// notice notes that the master is not hung at a time, and reports whether it has been: then the silence of
// servers proves nothing, and their leases begin again. Between two calls the master waits for a quarter of
// the lease at most.
func (m *Master) notice(now clock.Time) (hung bool) {
	if hung = now > m.awake.Add(m.c.cfg.Lease/2); hung {
		m.watch(now)
	}
	m.awake = now
	return hung
}

// ask claims a server, if it is not claimed yet, and reads its view.
func (m *Master) ask(i int, deadline clock.Time) error {
	if err := m.c.fab.Open(i, deadline); err != nil {
		return err
	}
	if !m.signs[i].claimed {
		if err := m.claim(i, deadline); err != nil {
			return err
		}
	}
	v, err := m.c.viewOf(i, deadline)
	switch {
	case err != nil:
		return err
	case v.State() == layout.NoView:
		return errReborn
	case v == m.words[i] || v == m.tried[i]:
		m.words[i] = v
		return nil
	}
	return ErrDeposed
}

// claim ends the former master at a server: none of its requests is executed there after that. Of several
// masters that begin, one goes on at the most on each server.
func (m *Master) claim(i int, deadline clock.Time) error {
	c := m.c
	slot, err := c.slotAt(i, layout.MasterWord, deadline)
	if err != nil {
		return err
	}
	was := uint64(slot)
	if former := uint32(was); former != c.id {
		if former != 0 {
			if err := memservice.Fence(c.cfg.Context, c.cfg.Manager, c.cfg.Servers[i], former, deadline); err != nil {
				return err
			}
		}
		found := c.swap(i, layout.MasterWord, was, uint64(c.id))
		if err := c.once(deadline); err != nil {
			c.drop()
			return err
		}
		if v, err := c.fab.Word(found); err != nil || v != was {
			return errors.Join(err, ErrDeposed)
		}
	}
	v, err := c.viewOf(i, deadline)
	if err != nil {
		return err
	}
	m.words[i], m.tried[i] = v, v
	if v.Epoch() > c.newer.Epoch() || v.Epoch() == c.newer.Epoch() && v.State() > c.newer.State() {
		c.newer = v
	}
	m.signs[i].claimed = true
	return nil
}

// change makes a view of the members that answer, repairs the store there, and settles the view.
func (m *Master) change(deadline clock.Time) error {
	was := m.c.view
	for {
		err := m.survey(deadline)
		if err == nil {
			err = m.attempt(deadline)
		}
		switch {
		case err == nil:
			if m.Changed != nil {
				m.Changed(was, m.c.view)
			}
			return nil
		case m.c.fenced:
			return ErrDeposed
		case errors.Is(err, ErrDeposed), errors.Is(err, kv.ErrLost), errors.Is(err, verbs.ErrClosed):
			return err
		case m.c.rt.Now() >= deadline:
			return fmt.Errorf("change the members of the store: %w", err)
		}
		m.watch(m.c.rt.Now()) // perhaps another server has crashed
	}
}

// survey asks the members until each has answered or is known to have crashed.
func (m *Master) survey(deadline clock.Time) error {
	m.notice(m.c.rt.Now())
	for {
		quiet, err := m.probe()
		if err != nil || quiet == 0 {
			return err
		}
		if m.c.rt.Now() >= deadline {
			return fmt.Errorf("%d memory servers have not answered: %w", quiet, kv.ErrTimeout)
		}
		m.c.rt.Sleep(m.c.cfg.Lease / 4)
	}
}

// attempt is one attempt of change.
func (m *Master) attempt(deadline clock.Time) error {
	c := m.c
	now := c.rt.Now()
	next := c.newer.Next(func(i int) bool { return !m.signs[i].lost && !m.signs[i].dead })
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
	c.missing, c.index = 0, c.index[:0]
	for i := range c.super.Shape.IndexReplicas {
		if next.Has(i) {
			c.index = append(c.index, i)
		}
	}
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
	r := repair{changer: &c.changer, same: !next.Moved(), patience: max(2*c.cfg.Lease, minPatience)}
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
	c.heirs = slices.DeleteFunc(c.heirs, func(e estate) bool { return !c.has(e.server) })
	m.wards = nil // the words of leases are perhaps on another server
	return nil
}

// announce puts a view in the place of those that the members are known to have.
func (m *Master) announce(v layout.View, deadline clock.Time) error {
	c := m.c
	var found [layout.MaxServers]int
	for i := range c.links {
		if v.Has(i) {
			m.tried[i] = v
			found[i] = c.swap(i, layout.ViewWord, uint64(m.words[i]), uint64(v))
		}
	}
	if err := c.do(deadline); err != nil {
		return err
	}
	for i := range c.links {
		if !v.Has(i) {
			continue
		}
		was, err := c.fab.Word(found[i])
		if err != nil {
			return err
		}
		if was != uint64(m.words[i]) && was != uint64(v) {
			return ErrDeposed
		}
		m.words[i] = v
	}
	return nil
}
