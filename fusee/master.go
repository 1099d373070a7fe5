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

// Master watches the memory servers of a store, and removes a server from the members when the
// server has crashed. The lasting state of a master is in the memory servers (layout.View), so
// another master can continue its work.
//
// A change of the members has two steps. First the master writes a view in the state Preparing into
// the servers that remain, and has them end all connections except its own. After that these
// servers execute no request of a client that does not know of the change. Once viewLease has
// passed, no client uses what it reads from a server that was removed. Then the master makes the
// replicas of the index alike (see repair), and writes the view in the state Settled.
type Master struct {
	c *Client
	// signs has, by server, what the master knows about whether the server is alive.
	signs signs
	// usable is the last view that clients may use, as far as the master knows: its members have
	// everything that was acknowledged. An attempt of a change may have left out some of them.
	// Until the master writes another view in the state Settled, a later attempt may have them as
	// members again.
	usable layout.View
	// words are the views that the servers have, as far as the master knows. tried are the views
	// that this master has tried to write in their place; the outcome may be unknown. If a server
	// has neither of the two, another master has written its view.
	words, tried []layout.View
	// awake is when notice was called last. A long time since then means that the master was hung.
	awake   clock.Time
	contact contact
	// standby is what the master knows of its standby. takes is true if this master was the standby
	// and takes charge, until it has written its first view in the state Settled.
	standby standbyState
	takes   bool
	// Changed, if set, is called after each change of the members.
	Changed func(was, now layout.View)
	// Recovered, if set, is called after the master has recovered a client.
	Recovered func(owner uint32)
	// Counted, if set, is called with the number of a standby when the master begins to count on it
	// (it needs that standby's agreement to go on with few servers), and with 0 when the master has
	// retired it.
	Counted func(standby uint32)
	// Failed, if set, is called when the master cannot recover clients, or cannot fill a server. The master
	// tries it again, and calls Failed again only if the error is another one.
	Failed func(err error)
	// Filling, if set, is called when the master begins to fill a server that answers again.
	Filling func(server int)
	// failed is the text of the error for which Failed was called last; "" after a success.
	failed string
	// wards are the clients that own blocks. nextTend is when the master examines them again. ended are
	// dead clients whose blocks the master has taken over and has not settled completely.
	wards    map[uint32]ward
	nextTend clock.Time
	ended    []uint32
	// guest is the server that the master makes a member again, if there is one.
	guest guest
}

// ErrDeposed means that another master has taken charge of the store. The master that gets this
// error changes nothing from then on.
var ErrDeposed = errors.New("another master has taken charge of the store")

// deadAfter decides when silence counts as death. A memory server that may be silent for n leases
// counts as crashed only after n*deadAfter READs in a row have failed. A client counts as dead when
// its lease is over and deadAfter checks after that have found no sign of life (see look).
const deadAfter = 2

// OpenMaster makes the master of a store. First it fences the former master. Then it changes the
// view once. So clients know that there is a master, and a change of the members that the former
// master has begun is completed.
func OpenMaster(cfg Config, deadline clock.Time) (*Master, error) {
	m, err := newMaster(cfg)
	if err != nil {
		return nil, err
	}
	m.c.mem.exempt, m.c.mem.managed = true, true
	if err := m.c.start(cfg, deadline); err != nil {
		return nil, err
	}
	m.usable = m.c.mem.newer
	m.watch(m.c.mem.rt.Now())
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
	return &Master{c: newClient(), signs: make(signs, n), words: make([]layout.View, n), tried: make([]layout.View, n)}, nil
}

// watch begins the leases of all servers and of the standby again: their silence counts from now
// on.
func (m *Master) watch(now clock.Time) {
	m.awake, m.standby.since = now, now
	m.signs.watch(now)
}

// View returns the view of the store: which servers are its members.
func (m *Master) View() layout.View { return m.c.mem.view }

// Super returns the superblock, which describes the store.
func (m *Master) Super() layout.Superblock { return m.c.space.super }

// Rounds returns how many times the master has asked all members in turn and all have answered. Any
// goroutine may call it. If a later call returns at least 2 more, no other master had taken charge
// when the first call was made: the last of these rounds began after the first call. It would have
// failed, because another master ends the connections of this master to at least half of the
// members when it takes charge.
func (m *Master) Rounds() uint64 { return m.contact.rounds.Load() }

// Close ends the connections. The members remain as they are.
func (m *Master) Close() error { return m.c.Close() }

// Run watches the servers until the context ends, the store is lost, or another master has taken
// charge of the store (ErrDeposed).
func (m *Master) Run() error {
	every := m.c.mem.cfg.Lease / 4
	for {
		if err := m.Step(); err != nil {
			if errors.Is(err, verbs.ErrClosed) {
				return nil
			}
			return err
		}
		m.c.mem.rt.Sleep(every)
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
		if m.c.mem.view.Has(i) && (s.lost || s.dead) {
			return m.persist()
		}
		if m.c.mem.view.Has(i) && s.failed > 0 {
			quiet++
		}
	}
	if quiet > 0 {
		return nil
	}
	err = errors.Join(m.retire(), m.tend())
	m.notice(m.c.mem.rt.Now())
	if m.guest.stage == cleared && !m.c.mem.fenced {
		return m.persist()
	}
	err = errors.Join(err, m.welcome())
	m.notice(m.c.mem.rt.Now())
	switch {
	case m.c.mem.fenced:
		return ErrDeposed
	case errors.Is(err, verbs.ErrClosed), errors.Is(err, kv.ErrLost), errors.Is(err, ErrDeposed):
		return err
	}
	m.report(err) // no error ends the master: if a server does not answer, the next probe shows it
	return nil
}

// report calls Failed for err, unless it is nil or the same error as in the last call.
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

// persist changes the members, however long that takes: clients wait until the change has ended. It
// takes long, for example, if the memory service of a server hangs while the server's NIC goes on.
func (m *Master) persist() error {
	for {
		err := m.change(m.c.mem.rt.Now().Add(changePatience))
		switch {
		case err == nil, m.c.mem.fenced, errors.Is(err, ErrDeposed), errors.Is(err, kv.ErrLost), errors.Is(err, verbs.ErrClosed):
			return err
		}
		m.report(err)
		m.c.mem.rt.Sleep(glancePause) // the change may have failed without any delay
	}
}

// changePatience is how long a master tries to change the members before it reports why it has not succeeded.
const changePatience = 30 * time.Second

// minPatience is how long a master waits at least for an answer in the middle of a change.
const minPatience = 100 * time.Millisecond

// probe reads the views of all members, and waits for each at most a quarter of the lease. quiet is
// how many members have not answered and do not count as crashed yet.
func (m *Master) probe() (quiet int, err error) {
	answers := 0
	defer func() {
		x := &m.contact
		x.silent, x.forgiven = err == nil && answers == 0, x.forgiven && answers < m.c.mem.view.Members()
		if err == nil && quiet == 0 && answers >= m.c.mem.view.Members() {
			x.rounds.Add(1)
		}
	}()
	for i := range m.signs {
		s := &m.signs[i]
		// When a master begins, the former master may have made a newer view than the one that this
		// master knows.
		if !m.c.mem.view.Has(i) && !m.c.mem.newer.Has(i) || s.lost || s.dead {
			continue
		}
		asked := m.c.mem.rt.Now()
		m.notice(asked)
		err := m.ask(i, asked.Add(m.c.mem.cfg.Lease/4))
		if errors.Is(err, errReborn) {
			err = m.reborn(i, err, m.c.mem.rt.Now().Add(m.c.mem.cfg.Lease/4))
		}
		if m.c.mem.fenced {
			return 0, ErrDeposed
		}
		if m.notice(m.c.mem.rt.Now()) && !errors.Is(err, errKept) {
			quiet++ // the answer may have come while the master was hung
			continue
		}
		switch {
		case err == nil:
			if m.contact.regained(asked, m.c.mem.cfg.Lease) { // the leases of all servers begin again
				m.watch(asked)
				m.signs.pardon()
				quiet++ // Step asks the others again before it recovers clients or fills servers
			}
			answers++
			s.since, s.failed = asked, 0
		case errors.Is(err, ErrDeposed), errors.Is(err, verbs.ErrClosed):
			return 0, err
		case errors.Is(err, errReborn):
			s.lost = true
		case errors.Is(err, errKept):
			s.dead, s.kept, s.waited = true, true, lastLeases
		default:
			s.failed++
			n := m.leases(i)
			s.waited = n
			s.dead = asked >= s.since.Add(time.Duration(n)*m.c.mem.cfg.Lease) && s.failed >= n*deadAfter
			if !s.dead {
				quiet++
			}
		}
	}
	return quiet, nil
}

// errKept: the NIC of a member was down, and the member has kept its memory.
var errKept = errors.New("the memory server was restarted with its memory")

// reborn is called when the memory service of member i is another incarnation than the one that
// this master knows; why is the error that has shown this. reborn looks at the view and the
// master's number in the server's memory. Without a view the memory was lost, and reborn returns
// why. With a view and another master's number, that master has filled the server while this one
// was hung: reborn returns ErrDeposed.
//
// With a view and the number of this master it is still the same memory, because a host's memory
// survives a crash of its NIC: reborn returns errKept. Clients accept the new incarnation as a
// member only with a later view, so the master then changes the view. The server remains a member
// if the store needs it (see again). It does not count as lost (sign.lost), because a standby can
// still read and write its words there (see outvoted).
func (m *Master) reborn(i int, why error, deadline clock.Time) error {
	if !m.signs[i].claimed {
		return why
	}
	switch v, err := m.c.mem.peek(i, layout.View(0), deadline); {
	case err != nil:
		return err
	case v.State() != layout.NoView && m.c.mem.wordAt(i, layout.MasterWord) == uint64(m.c.mem.id):
		return errKept
	case v.State() != layout.NoView:
		return ErrDeposed
	}
	return why
}

// lastLeases is how many leases a server may be silent if the store is lost without it. The store gains
// nothing if the master removes such a server early, and perhaps only its link loses packets.
const lastLeases = 8

// leases returns how many leases server i may be silent before it counts as crashed: 1 if the store
// survives without it, otherwise lastLeases.
func (m *Master) leases(i int) int {
	rest := m.c.mem.view.Next(func(j int) bool { return j != i && m.signs[j].alive() })
	if m.c.space.super.Shape.Survives(rest) {
		return 1
	}
	return lastLeases
}

// errDoubt: the store is lost without the servers that were taken for crashed. But some of these
// servers have been silent for less than lastLeases, or have answered again.
var errDoubt = fmt.Errorf("memory servers without which the store is lost do not answer: %w", kv.ErrTimeout)

// errSeparated: no server answers this master. Perhaps only the master's link is down, so no server
// is taken for crashed.
var errSeparated = fmt.Errorf("no memory server answers the master: %w", kv.ErrTimeout)

// again is called when the store is lost without the servers that were taken for crashed. It asks
// all servers once more, members or not. A server that answers has not crashed: the master examines
// it again (errDoubt). If no server answers, the master is cut off while clients may go on, and it
// waits until it reaches a server (errSeparated). again returns nil if the servers that were taken
// for crashed do not answer and another server does.
func (m *Master) again() error {
	silent, wrong := true, false
	for i := range m.c.mem.links {
		_, err := m.c.mem.peek(i, m.c.mem.newer.As(layout.NoView), m.c.mem.rt.Now().Add(minPatience))
		m.notice(m.c.mem.rt.Now())
		if err == nil || errors.Is(err, errReborn) || m.c.mem.fenced {
			silent = false
			wrong = wrong || m.signs[i].dead || m.usable.Has(i) && !m.c.mem.newer.Has(i) && !m.signs[i].lost
			m.signs[i].dead = false
		}
	}
	switch {
	case wrong:
		return errDoubt
	case !silent:
		return nil
	}
	m.signs.revive()
	return errSeparated
}

// notice is called at least every half of the lease while the master runs. It reports whether the
// master was hung since the last call. The silence of servers proves nothing then, so notice begins
// their leases again.
func (m *Master) notice(now clock.Time) (hung bool) {
	if hung = now > m.awake.Add(m.c.mem.cfg.Lease/2); hung {
		m.watch(now)
	}
	m.awake = now
	return hung
}

// ask reads the view of a server, and writes a sign that the master is alive there. Before that it
// claims the server if this master has not claimed it yet (see claim). If another master has
// written the view, ask returns ErrDeposed.
func (m *Master) ask(i int, deadline clock.Time) error {
	if !m.signs[i].claimed {
		// The server may be another incarnation than the one that this master knew while it was
		// the standby.
		if _, err := m.c.mem.peek(i, m.usable.As(layout.NoView), deadline); err != nil {
			return err
		}
	}
	if err := m.c.mem.fab.Open(i, deadline); err != nil {
		return err
	}
	if !m.signs[i].claimed {
		if err := m.claim(i, deadline); err != nil {
			return err
		}
	}
	t, err := m.c.mem.exchange(i, layout.ReignWord, m.standby.beat(), deadline)
	if err != nil {
		return err
	}
	m.hear(i, t, m.c.mem.rt.Now())
	if t.view == m.words[i] || t.view == m.tried[i] {
		m.words[i] = t.view
		return nil
	}
	return ErrDeposed
}

// claim ends the former master at a server: none of its requests is executed there after that. If
// several masters begin at the same time, at most one of them can claim each server.
func (m *Master) claim(i int, deadline clock.Time) error {
	c := m.c
	slot, err := c.space.slotAt(i, layout.MasterWord, deadline)
	if err != nil {
		return err
	}
	if err := m.supersede(i, uint64(slot), ErrDeposed, deadline); err != nil {
		return err
	}
	v, err := c.mem.viewOf(i, deadline)
	if err != nil {
		return err
	}
	m.words[i], m.tried[i] = v, v
	if v.Newer(m.usable) { // the former master may have settled view v
		m.usable, c.mem.newer = v, v.WithEpoch(max(v.Epoch(), c.mem.newer.Epoch()))
	}
	m.signs[i].claimed = true
	return nil
}

// supersede fences the former master at server i, and makes this master the last one that has
// claimed the server. was is the server's word with the number of the former master, as it was
// read. If the word has changed since then, supersede returns the error lost.
func (m *Master) supersede(i int, was uint64, lost error, deadline clock.Time) error {
	c, former := m.c, uint32(was)
	if former == c.mem.id {
		return nil
	}
	if former != 0 {
		if err := c.mem.fence(c.mem.cfg.Servers[i], former, deadline); err != nil {
			return err
		}
	}
	found := c.mem.swap(i, layout.MasterWord, was, uint64(c.mem.id))
	if err := c.mem.once(deadline); err != nil {
		c.mem.drop()
		return err
	}
	if v, err := c.mem.fab.Word(found); err != nil || v != was {
		return errors.Join(err, lost)
	}
	return nil
}

// change makes a view of the members that answer, makes the replicas on these members equal, and
// writes the view in the state Settled.
func (m *Master) change(deadline clock.Time) error {
	was := m.c.mem.view
	for {
		err := m.survey(deadline)
		if err == nil {
			err = m.attempt(deadline)
		}
		switch {
		case err == nil:
			if m.Changed != nil {
				m.Changed(was, m.c.mem.view)
			}
			return nil
		case m.c.mem.fenced:
			return ErrDeposed
		case errors.Is(err, ErrDeposed), errors.Is(err, kv.ErrLost), errors.Is(err, verbs.ErrClosed):
			return err
		case errors.Is(err, errDoubt): // a member that an earlier attempt has left out may be alive and needed
			m.rollback()
		case errors.Is(err, errAlone): // try again until a standby or the other servers answer
			m.rollback()
			m.signs.revive() // the master must not go on without them, so it asks them again
			deadline = m.c.mem.rt.Now().Add(changePatience)
		case errors.Is(err, errSeparated): // try again until servers answer
			deadline = m.c.mem.rt.Now().Add(changePatience)
		case m.c.mem.rt.Now() >= deadline:
			return fmt.Errorf("change the members of the store: %w", err)
		}
		// Meanwhile another server has perhaps crashed: its silence counts from now on.
		m.watch(m.c.mem.rt.Now())
	}
}

// survey asks the members until each has answered or is known to have crashed.
func (m *Master) survey(deadline clock.Time) error {
	m.notice(m.c.mem.rt.Now())
	for {
		quiet, err := m.probe()
		if err != nil || quiet == 0 {
			return err
		}
		if m.c.mem.rt.Now() >= deadline {
			return fmt.Errorf("%d memory servers have not answered: %w", quiet, kv.ErrTimeout)
		}
		m.c.mem.rt.Sleep(m.c.mem.cfg.Lease / 4)
	}
}

// attempt tries once to change the members, for the method change. survey has made sure that each
// member has answered or is known to have crashed.
func (m *Master) attempt(deadline clock.Time) error {
	c := m.c
	next := c.mem.newer.Next(func(i int) bool { return m.signs[i].alive() })
	if !c.space.super.Shape.Survives(next) {
		if m.signs.doubts() {
			return errDoubt
		}
		if err := m.again(); err != nil {
			return err
		}
	}
	if err := m.enough(next); err != nil {
		return err
	}
	for i := range c.mem.links {
		if !next.Has(i) {
			if err := c.mem.fab.Break(i); err != nil {
				return err
			}
		}
	}
	limit := min(deadline, c.mem.rt.Now().Add(max(2*c.mem.cfg.Lease, minPatience)))
	c.mem.newer = next // the next attempt takes a later epoch, because a server may have this one
	if err := m.announce(next, next, limit); err != nil {
		return err
	}
	if err := m.agree(next); err != nil {
		return err
	}
	limit = max(limit, c.mem.rt.Now().Add(minPatience))
	if !c.space.super.Shape.Survives(next) {
		if c.mem.elsewhere(c.mem.view, limit) != c.mem.view {
			// Another master has filled servers while this one was hung.
			return ErrDeposed
		}
		c.mem.view = next.As(layout.Gone)
		return errors.Join(errGone, m.announce(c.mem.view, c.mem.view, limit))
	}
	told := c.mem.rt.Now()
	c.mem.view = next
	c.mem.missing, c.space.index = 0, c.space.index[:0]
	for i := range c.space.super.Shape.IndexReplicas {
		if next.Has(i) {
			c.space.index = append(c.space.index, i)
		}
	}
	last := c.mem.id
	for i := range c.mem.servers(next) {
		to := c.mem.cfg.Servers[i]
		n, err := memservice.DisconnectOthers(c.mem.cfg.Context, c.mem.cfg.Manager, to, c.mem.id, limit)
		if err != nil {
			return err
		}
		last = max(last, n)
	}
	if rest := told.Add(viewLease).Sub(c.mem.rt.Now()); rest > 0 {
		c.mem.rt.Sleep(rest)
	}
	r := repair{slots: &c.slots, same: !next.Moved(), patience: c.mem.cfg.patience()}
	if err := r.all(); err != nil {
		return err
	}
	if err := c.numberFrom(last, deadline); err != nil {
		return err
	}
	members, err := m.admit(next)
	if err == nil {
		m.usable = members
		err = m.conclude(next, members)
	}
	if m.judge(members, err); err != nil {
		return err
	}
	c.space.use(members)
	m.takes = false
	for i := range m.signs {
		m.signs[i].kept = false
	}
	c.slots.orphans = slices.DeleteFunc(c.slots.orphans, func(e orphan) bool { return !c.mem.has(e.server) })
	// The primary, which has the lease words of clients, is perhaps on another server now.
	m.wards = nil
	return nil
}

// conclude writes the view `members`, which is Settled, in place of the view next, which is
// Preparing. If a server was filled, it is in `members` but not in next, and gets the view last: no
// client uses the view before all its members have it. As soon as that server may have the view,
// clients may send it requests. If it does not answer then, it counts as a member that is lost.
func (m *Master) conclude(next, members layout.View) error {
	if members.Members() == next.Members() {
		return m.announce(members, next, m.c.mem.rt.Now().Add(minPatience))
	}
	m.c.mem.view, m.c.mem.newer = members, members
	if err := m.announce(members, next, m.c.mem.rt.Now().Add(minPatience)); err != nil {
		return err
	}
	m.standby.agreed(members)
	return m.announce(members, members, m.c.mem.rt.Now().Add(minPatience))
}

// announce writes view v to all servers in the view `to`, each by a CAS from the view that the
// server is known to have. If a server has another view, announce returns ErrDeposed.
func (m *Master) announce(v, to layout.View, deadline clock.Time) error {
	c := m.c
	m.standby.announced(v)
	var found [layout.MaxServers]int
	for i := range c.mem.links {
		if to.Has(i) && m.words[i] != v {
			m.tried[i] = v
			found[i] = c.mem.swap(i, layout.ViewWord, uint64(m.words[i]), uint64(v))
		}
	}
	if err := c.mem.do(deadline); err != nil {
		return err
	}
	for i := range c.mem.links {
		if !to.Has(i) || m.words[i] == v {
			continue
		}
		was, err := c.mem.fab.Word(found[i])
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
