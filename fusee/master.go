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

// Master watches the memory servers of a store, and removes a server from the members when that has
// crashed. The lasting state of a master is in the memory servers (layout.View), so another master can
// continue its work.
//
// A change of the members has two steps. First the master writes a view in the state Preparing into
// the servers that remain, and has them end all connections but its own. After that these servers
// execute no request of a client that does not know of the change. Once viewLease has passed, no
// client uses what it reads from a server that was removed. Then the master makes the replicas of the
// index alike (see repair), and writes the view in the state Settled.
type Master struct {
	c *Client
	// signs has what the master knows of the life of each server.
	signs []sign
	// words are the views that the servers have, as far as the master knows. tried are the views that
	// the master has tried to write in their place; the outcome may be unknown. Another master has
	// written any other view.
	words, tried []layout.View
	// awake is the last time at which the master has noticed that it is not hung.
	awake clock.Time
	// second is what the master knows of its standby. beats counts the signs of life of this master.
	// takes is true for a standby that takes charge, until it has settled its first view.
	second second
	beats  uint32
	takes  bool
	// Changed, if set, is called after each change of the members.
	Changed func(was, now layout.View)
	// Recovered, if set, is called after the master has recovered a client.
	Recovered func(owner uint32)
	// Counted, if set, is called with the number of a standby when the master begins to count on it,
	// and with 0 when the master has retired it.
	Counted func(standby uint32)
	// Failed, if set, is called when the master cannot recover clients, or cannot fill a server. The master
	// tries it again, and calls Failed again only if the error is another one.
	Failed func(err error)
	// Filling, if set, is called when the master begins to fill a server that answers again.
	Filling func(server int)
	// failed is the last error.
	failed string
	// wards are the clients that own blocks. nextTend is when the master examines them again. ended are
	// dead clients whose blocks the master has taken over and has not settled completely.
	wards    map[uint32]ward
	nextTend clock.Time
	ended    []uint32
	// guest is the server that the master makes a member again.
	guest guest
}

// sign is what a master knows of the life of a server.
type sign struct {
	// since is the begin of the last READ that the server has answered, or the time at which the master
	// began to watch the server. failed counts the failed READs since then.
	since  clock.Time
	failed int
	// lost is true if the server has lost its memory and runs again. dead is true if the server has
	// been silent for so many leases that the master takes it for crashed: waited.
	lost, dead bool
	waited     int
	// claimed is true if the server executes no request of the former master any more.
	claimed bool
}

// ErrDeposed means that another master has taken charge of the store. This one changes nothing any more.
var ErrDeposed = errors.New("another master has taken charge of the store")

// deadAfter is how many READs in sequence must fail until a server is taken for crashed.
const deadAfter = 2

// OpenMaster makes the master of a store. It ends the former master first, and changes the view once: so
// that clients know that there is a master, and so that a change which the former one has begun is ended.
func OpenMaster(cfg Config, deadline clock.Time) (*Master, error) {
	m, err := newMaster(cfg)
	if err != nil {
		return nil, err
	}
	m.c.exempt, m.c.managed = true, true
	if err := m.start(cfg, deadline); err != nil {
		return nil, err
	}
	m.watch(m.c.rt.Now())
	return m, m.change(deadline)
}

// newMaster makes a master that is not connected yet.
func newMaster(cfg Config) (*Master, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Lease != 0 && cfg.Lease < MinMasterLease {
		return nil, fmt.Errorf("fusee: a master with a lease of %v: want %v at least", cfg.Lease, MinMasterLease)
	}
	n := len(cfg.Servers)
	return &Master{c: new(Client), signs: make([]sign, n), words: make([]layout.View, n), tried: make([]layout.View, n)}, nil
}

// start connects a master.
func (m *Master) start(cfg Config, deadline clock.Time) error {
	return m.c.start(cfg, deadline)
}

// watch begins the leases of all servers again.
func (m *Master) watch(now clock.Time) {
	m.awake, m.second.since = now, now
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
// memory. If all have answered, it recovers clients that have died, and fills a server that answers again.
func (m *Master) Step() error {
	quiet, err := m.probe()
	if err != nil {
		return err
	}
	for i, s := range m.signs {
		if m.c.view.Has(i) && (s.lost || s.dead) {
			return persist(m)
		}
		if m.c.view.Has(i) && s.failed > 0 {
			quiet++
		}
	}
	if quiet > 0 {
		return nil
	}
	err = errors.Join(m.retire(), m.tend())
	m.notice(m.c.rt.Now())
	if m.guest.stage == cleared && !m.c.fenced {
		return persist(m)
	}
	err = errors.Join(err, m.welcome())
	m.notice(m.c.rt.Now())
	switch {
	case m.c.fenced:
		return ErrDeposed
	case errors.Is(err, verbs.ErrClosed), errors.Is(err, kv.ErrLost), errors.Is(err, ErrDeposed):
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

// persist changes the members, however long that takes: clients wait until the change has ended.
// The memory service of a server may hang, for example, while its NIC goes on.
func persist(m *Master) error {
	for {
		err := m.change(m.c.rt.Now().Add(changePatience))
		switch {
		case err == nil, m.c.fenced, errors.Is(err, ErrDeposed), errors.Is(err, kv.ErrLost), errors.Is(err, verbs.ErrClosed):
			return err
		}
		m.report(err)
		m.c.rt.Sleep(glancePause) // the change may fail at once
	}
}

// changePatience is how long a master tries to change the members before it reports why it has not succeeded.
const changePatience = 30 * time.Second

// minPatience is how long a master waits at least for an answer in the middle of a change.
const minPatience = 100 * time.Millisecond

// probe reads the views of all members, each with a patience of its own. quiet counts those that have not
// answered and are not dead yet.
func (m *Master) probe() (quiet int, err error) {
	for i := range m.signs {
		s := &m.signs[i]
		// When a master begins, the former one may have settled a view that is newer than its own.
		if !m.c.view.Has(i) && !m.c.newer.Has(i) || s.lost || s.dead {
			continue
		}
		asked := m.c.rt.Now()
		m.notice(asked)
		err := m.ask(i, asked.Add(m.c.cfg.Lease/4))
		if errors.Is(err, errReborn) {
			err = m.reborn(i, err, m.c.rt.Now().Add(m.c.cfg.Lease/4))
		}
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
		case errors.Is(err, errKept):
			s.dead, s.waited = true, lastLeases
		default:
			s.failed++
			n := m.leases(i)
			s.waited = n
			s.dead = asked >= s.since.Add(time.Duration(n)*m.c.cfg.Lease) && s.failed >= n*deadAfter
			if !s.dead {
				quiet++
			}
		}
	}
	return quiet, nil
}

// errKept: the NIC of a member was down, and the member has its memory yet.
var errKept = errors.New("the memory server was restarted with its memory")

// reborn is called when a member's service is another incarnation than the one that this master
// knows, with that error. If the memory has a view of the store, and another master, that one has
// filled it: this one was hung meanwhile. If it has this master, it is the memory that this one
// knows: a host's memory survives a crash of its NIC. Clients take that incarnation for a member
// only in a later view, so the master changes the members. The server remains one if the store
// needs it (see again). It is no lost one, because a standby may count on it.
func (m *Master) reborn(i int, why error, deadline clock.Time) error {
	if !m.signs[i].claimed {
		return why
	}
	switch v, err := m.c.peek(i, layout.View(0), deadline); {
	case err != nil:
		return err
	case v.State() != layout.NoView && m.c.wordAt(i, layout.MasterWord) == uint64(m.c.id):
		return errKept
	case v.State() != layout.NoView:
		return ErrDeposed
	}
	return why
}

// lastLeases is how many leases a server may be silent if the store is lost without it. The store gains
// nothing if the master removes such a server early, and perhaps only its link loses packets.
const lastLeases = 8

// leases is how many leases a server may be silent.
func (m *Master) leases(i int) int {
	rest := m.c.view.Next(func(j int) bool { return j != i && !m.signs[j].lost && !m.signs[j].dead })
	if m.c.super.Shape.Survives(rest) {
		return 1
	}
	return lastLeases
}

// errDoubt: servers without which the store is lost have been silent, but not for lastLeases, or have
// answered since then.
var errDoubt = fmt.Errorf("memory servers without which the store is lost do not answer: %w", kv.ErrTimeout)

// doubts is called when the store is lost without the servers that were taken for crashed. Those that were
// silent for less than lastLeases, because another server was a member then, get the rest of the time: perhaps
// the network was down. doubts reports whether there are any.
func (m *Master) doubts() (any bool) {
	for i := range m.signs {
		if s := &m.signs[i]; s.dead && s.waited < lastLeases {
			s.dead, any = false, true
		}
	}
	return any
}

// errSeparated: no server answers this master, which proves nothing about the servers.
var errSeparated = fmt.Errorf("no memory server answers the master: %w", kv.ErrTimeout)

// again is called when the store is lost without the servers that were taken for crashed. It asks all servers
// once more, members or not. A server that answers has not crashed: the master examines it again. If none
// answers, the master is cut off while clients may go on, and it waits until it reaches a server. again returns
// nil if what the master knows of the servers is right.
func again(m *Master) error {
	silent, wrong := true, false
	for i := range m.c.links {
		_, err := m.c.peek(i, m.c.newer.As(layout.NoView), m.c.rt.Now().Add(minPatience))
		m.notice(m.c.rt.Now())
		if err == nil || errors.Is(err, errReborn) || m.c.fenced {
			silent = false
			wrong = wrong || m.signs[i].dead
			m.signs[i].dead = false
		}
	}
	switch {
	case wrong:
		return errDoubt
	case !silent:
		return nil
	}
	for i := range m.signs {
		m.signs[i].dead = false
	}
	return errSeparated
}

// notice is called at least every half of the lease while the master runs. It reports whether the
// master was hung since the last call. The silence of servers proves nothing then, so notice begins
// their leases again.
func (m *Master) notice(now clock.Time) (hung bool) {
	if hung = now > m.awake.Add(m.c.cfg.Lease/2); hung {
		m.watch(now)
	}
	m.awake = now
	return hung
}

// ask claims a server, if it is not claimed yet, and reads its view.
func (m *Master) ask(i int, deadline clock.Time) error {
	if !m.signs[i].claimed { // a standby may have to do with another incarnation of the server
		if _, err := m.c.peek(i, m.c.newer.As(layout.NoView), deadline); err != nil {
			return err
		}
	}
	if err := m.c.fab.Open(i, deadline); err != nil {
		return err
	}
	if !m.signs[i].claimed {
		if err := m.claim(i, deadline); err != nil {
			return err
		}
	}
	t, err := m.c.exchange(i, layout.ReignWord, m.beat(), deadline)
	if err != nil {
		return err
	}
	m.hear(i, t, m.c.rt.Now())
	if t.view == m.words[i] || t.view == m.tried[i] {
		m.words[i] = t.view
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
			if err := c.fence(c.cfg.Servers[i], former, deadline); err != nil {
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
	if v.Newer(c.newer) {
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
		case errors.Is(err, errAlone): // until a standby or the other servers answer
			m.hope()
			deadline = m.c.rt.Now().Add(changePatience)
		case errors.Is(err, errSeparated): // until servers answer
			deadline = m.c.rt.Now().Add(changePatience)
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
	next := c.newer.Next(func(i int) bool { return !m.signs[i].lost && !m.signs[i].dead })
	if !c.super.Shape.Survives(next) {
		if m.doubts() {
			return errDoubt
		}
		if err := again(m); err != nil {
			return err
		}
	}
	if err := m.enough(next); err != nil {
		return err
	}
	for i := range c.links {
		if !next.Has(i) {
			if err := c.fab.Break(i); err != nil {
				return err
			}
		}
	}
	limit := min(deadline, c.rt.Now().Add(max(2*c.cfg.Lease, minPatience)))
	c.newer = next // the epoch is used up
	if err := m.announce(next, next, limit); err != nil {
		return err
	}
	if err := m.agree(next); err != nil {
		return err
	}
	limit = max(limit, c.rt.Now().Add(minPatience))
	if !c.super.Shape.Survives(next) {
		if c.elsewhere(c.view, limit) != c.view { // of a master that has filled servers while this one was hung
			return ErrDeposed
		}
		c.view = next.As(layout.Gone)
		return errors.Join(errGone, m.announce(c.view, c.view, limit))
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
	members, err := m.admit(next)
	if err == nil {
		err = m.conclude(next, members)
	}
	if m.judge(members, err); err != nil {
		return err
	}
	c.use(members)
	m.takes = false
	c.heirs = slices.DeleteFunc(c.heirs, func(e estate) bool { return !c.has(e.server) })
	m.wards = nil // the words of leases are perhaps on another server
	return nil
}

// conclude settles the view members in the place of next. A server that is not in next is told last: no
// client uses the view before all its members have it. From the time at which that server may have the
// view, it may have requests of clients: if it does not answer then, it counts as a member that is lost.
func (m *Master) conclude(next, members layout.View) error {
	if members.Members() == next.Members() {
		return m.announce(members, next, m.c.rt.Now().Add(minPatience))
	}
	m.c.view, m.c.newer = members, members
	if err := m.announce(members, next, m.c.rt.Now().Add(minPatience)); err != nil {
		return err
	}
	m.second.base = members
	return m.announce(members, members, m.c.rt.Now().Add(minPatience))
}

// announce puts a view in the place of those that the servers in the view `to` are known to have.
func (m *Master) announce(v, to layout.View, deadline clock.Time) error {
	c := m.c
	var found [layout.MaxServers]int
	for i := range c.links {
		if to.Has(i) && m.words[i] != v {
			m.tried[i] = v
			found[i] = c.swap(i, layout.ViewWord, uint64(m.words[i]), uint64(v))
		}
	}
	if err := c.do(deadline); err != nil {
		return err
	}
	for i := range c.links {
		if !to.Has(i) || m.words[i] == v {
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
