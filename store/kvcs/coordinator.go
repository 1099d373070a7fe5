package kvcs

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// CoordinatorConfig describes a coordinator. Fields that are not marked as required have defaults.
type CoordinatorConfig struct {
	// Addr and PID are those of the process that issues the REKEYs; required.
	Addr netip.Addr
	PID  nic.PID
	// Shape is that of the table; required.
	Shape Shape
	// Rand makes the number of the store, those of sessions, and the new memory keys that REKEYs
	// give to replicas; required. On a rack, its numbers must not be predictable.
	Rand *rand.Rand
	// RTT is the round-trip time of the rack; required.
	RTT time.Duration
	// Lease is how long clients may use a view; 0 means 400 RTT. Patience is the time without
	// progress after which a server is fenced; 0 means 40 RTT.
	Lease, Patience time.Duration
}

// Bounds of a coordinator.
const (
	maxSessions = 4096
	// maxWaiting bounds the changes that wait to begin. A client may have two of them: if the
	// deadline of a change passes while the change waits, the client may send its next change.
	maxWaiting = 2 * maxSessions
	// sessionLeases is the number of leases without a message after which the coordinator may
	// forget a session, to make room for another. A client that goes on later begins a new session.
	sessionLeases = 2
	// maxLog bounds the records that are kept for a server that is not a replica yet (memberCopying).
	maxLog = 8192
	// sendWindow bounds the records, and copyWindow the bytes of the copy of the table, that are in
	// flight to a server.
	sendWindow = 64
	copyChunk  = MaxValue
	copyWindow = 16 * copyChunk
)

// CoordinatorStats counts what a coordinator has done.
type CoordinatorStats struct {
	// Changes is the number of changes that have taken effect. Joined is how often a server became
	// a replica. Fenced is how often the coordinator began to fence a replica. Rekeyed is how many
	// of these fences have ended with a REKEY, Expired how many with the end of clients' leases.
	// Left is how often a replica left because its server began a new instance.
	Changes, Fenced, Rekeyed, Expired, Left, Joined uint64
}

// session is the state of one client at the coordinator. Only messages from the address that has
// opened the session belong to it.
type session struct {
	id   uint64
	addr netip.AddrPort
	pid  nic.PID
	seen clock.Time
	// number is the number of the client's last change. result is the outcome of this change if
	// known is true.
	number uint64
	known  bool
	result uint8
}

type change struct {
	s      *session
	number uint64
	op     op
	key    uint64
	value  []byte
	at     uint64 // position of its first record in the log; 0 while the change waits
}

// Coordinator is the process that decides all changes. It is a sans-I/O machine.
type Coordinator struct {
	cfg      CoordinatorConfig
	store    uint64 // number of the store
	table    *table
	memory   Bytes
	members  []*member             // servers in any memberState, in the order of their joins
	last     map[netip.Addr]uint64 // the newest instance of each server that has joined
	sessions map[uint64]*session
	epoch    uint64
	// log has the records from position base on. active are the changes whose first records are in
	// the log and that have not taken effect, in the order of their positions; waiting are those
	// that have not begun. effective is the position of the last change that has taken effect.
	log             []record
	base, effective uint64
	active, waiting []*change
	tag             uint64 // tag of the last REKEY
	stats           CoordinatorStats
}

// NewCoordinator makes a coordinator with an empty table.
func NewCoordinator(cfg CoordinatorConfig) (*Coordinator, error) {
	if err := cfg.Shape.Validate(); err != nil {
		return nil, err
	}
	if cfg.Rand == nil || cfg.RTT <= 0 || !cfg.Addr.Is4() {
		return nil, fmt.Errorf("kvcs coordinator: give Rand, RTT and an IPv4 address, not %v", cfg.Addr)
	}
	cfg.Lease, cfg.Patience = cmp.Or(cfg.Lease, 400*cfg.RTT), cmp.Or(cfg.Patience, 40*cfg.RTT)
	c := &Coordinator{
		cfg: cfg, memory: make(Bytes, cfg.Shape.Bytes()), last: make(map[netip.Addr]uint64), sessions: make(map[uint64]*session), epoch: 1, base: 1,
		store: max(1, cfg.Rand.Uint64()),
	}
	c.table = newTable(cfg.Shape, c.memory)
	return c, nil
}

func (c *Coordinator) Stats() CoordinatorStats { return c.stats }

// Replicas returns the addresses of the servers that clients may use.
func (c *Coordinator) Replicas() (out []netip.Addr) {
	for _, m := range c.members {
		if m.state == memberActive {
			out = append(out, m.addr.Addr())
		}
	}
	return out
}

func (c *Coordinator) send(to netip.AddrPort, m *message, out *Outbox) {
	m.store = c.store
	out.send(to, m)
}

// head returns the position of the last record.
func (c *Coordinator) head() uint64 { return c.base + uint64(len(c.log)) - 1 }

// Receive handles a datagram.
func (c *Coordinator) Receive(now clock.Time, from netip.AddrPort, b []byte, out *Outbox) {
	var m message
	if !m.parse(b) {
		return
	}
	switch m.kind {
	case msgHello, msgRenew, msgChange:
		c.fromClient(now, from, &m, out)
	case msgJoin:
		c.joined(now, from, &m, out)
	case msgProgress:
		c.progress(now, from, &m, out)
	case msgView, msgForgotten, msgOutcome, msgRestart, msgCopy, msgRecord: // the coordinator sends these
	}
	c.advance(now, out)
}

func (c *Coordinator) fromClient(now clock.Time, from netip.AddrPort, m *message, out *Outbox) {
	var s *session
	if m.kind == msgHello {
		if s = c.open(now, from, nic.PID(m.region)); s == nil {
			return
		}
	} else if s = c.sessions[m.id]; s == nil || s.addr != from {
		c.send(from, &message{kind: msgForgotten, id: m.id}, out)
		return
	}
	s.seen = now
	if m.kind == msgChange {
		c.asked(s, m, out)
		return
	}
	v := c.viewFor(now, s)
	c.send(from, &message{kind: msgView, id: s.id, number: m.number, body: v.encode()}, out)
}

// open makes a session. It returns nil if there are too many. It forgets sessions that are not used
// any more, but none whose change is in progress.
func (c *Coordinator) open(now clock.Time, from netip.AddrPort, pid nic.PID) *session {
	if len(c.sessions) >= maxSessions {
		for id, s := range c.sessions {
			if now.Sub(s.seen) > sessionLeases*c.cfg.Lease && (s.known || s.number == 0) {
				delete(c.sessions, id)
			}
		}
		if len(c.sessions) >= maxSessions {
			return nil
		}
	}
	s := &session{id: c.cfg.Rand.Uint64(), addr: from, pid: pid}
	c.sessions[s.id] = s
	return s
}

// viewFor returns the view for a client, and notes that the client got a lease of each active member
// now. The client counts its lease from when it asked for the view, so its lease ends no later.
func (c *Coordinator) viewFor(now clock.Time, s *session) *view {
	v := &view{epoch: c.epoch, lease: c.cfg.Lease, shape: c.cfg.Shape}
	for _, m := range c.members {
		if m.state != memberActive {
			continue
		}
		m.granted = now
		v.replicas = append(v.replicas, Replica{
			Addr: m.addr.Addr(), Region: m.region, Key: nic.Derive(m.key, s.addr.Addr(), s.pid, onerma.Read),
		})
	}
	return v
}

// asked handles the request for a change, which may be a copy of an earlier request.
func (c *Coordinator) asked(s *session, m *message, out *Outbox) {
	o := op(m.op)
	switch {
	case m.number < s.number || m.number == 0 || o < opPut || o > opDelete:
		return
	case m.number == s.number && s.known:
		c.answer(s, out)
		return
	case m.number == s.number || len(c.waiting) >= maxWaiting:
		return
	}
	s.number, s.known = m.number, false
	c.waiting = append(c.waiting, &change{s: s, number: m.number, op: o, key: m.key, value: slices.Clone(m.body)})
}

// decided records the outcome of change x and tells the client.
func (c *Coordinator) decided(x *change, err error, out *Outbox) {
	if x.s.number != x.number {
		return // the client has begun a later change and needs no answer to this one
	}
	x.s.known, x.s.result = true, resultOf(err)
	c.answer(x.s, out)
}

func (c *Coordinator) answer(s *session, out *Outbox) {
	c.send(s.addr, &message{kind: msgOutcome, id: s.id, number: s.number, op: s.result}, out)
}

// advance does all that can be done now: it completes changes, adds members to the view, begins
// changes, and sends records.
func (c *Coordinator) advance(now clock.Time, out *Outbox) {
	for again := true; again; {
		again = c.complete(out)
		c.admit()
		c.copyAll(now)
		again = c.begin(out) || again
	}
	c.trim()
	for _, m := range c.members {
		c.push(now, m, out)
	}
}

// complete lets changes take effect, the oldest first. It stops at the first change whose record of
// step stepSet or stepRemove was not executed by all members for which changes wait (see
// member.counts). It returns true if a change has taken effect.
func (c *Coordinator) complete(out *Outbox) (any bool) {
	for len(c.active) > 0 {
		x := c.active[0]
		if slices.ContainsFunc(c.members, func(m *member) bool { return m.counts() && m.acked < x.at }) {
			return any
		}
		c.active, any = c.active[1:], true
		c.effective = x.at
		c.stats.Changes++
		c.append(&record{step: stepCommit, key: x.key})
		c.decided(x, nil, out)
	}
	return any
}

// begin begins, or refuses, the changes that wait, except those of keys with a change in progress.
// While a server waits for its copy, no change begins. begin returns true if a change has begun.
func (c *Coordinator) begin(out *Outbox) (any bool) {
	if len(c.waiting) == 0 || slices.ContainsFunc(c.members, func(m *member) bool { return m.state == memberWaiting }) {
		return false
	}
	busy := make(map[uint64]bool, len(c.active))
	for _, x := range c.active {
		busy[x.key] = true
	}
	left := c.waiting[:0]
	for _, x := range c.waiting {
		if busy[x.key] {
			left = append(left, x)
			continue
		}
		if err := c.table.check(x.op, x.key, len(x.value)); err != nil {
			c.decided(x, err, out)
			continue
		}
		busy[x.key], any = true, true
		r := record{step: stepSet, key: x.key, value: x.value}
		if x.op == opDelete {
			r = record{step: stepRemove, key: x.key}
		}
		x.at = c.append(&r)
		c.active = append(c.active, x)
	}
	clear(c.waiting[len(left):])
	c.waiting = left
	return any
}

// append appends a record to the log, executes it, and returns its position.
func (c *Coordinator) append(r *record) uint64 {
	c.log = append(c.log, *r)
	if err := c.table.execute(c.head(), r); err != nil {
		panic("kvcs: " + err.Error()) // check has allowed the record
	}
	return c.head()
}

// trim forgets the records that no member needs. It removes a server that is not a replica yet
// (memberCopying) when more than maxLog records wait for it.
func (c *Coordinator) trim() {
	least := c.head()
	for _, m := range slices.Clone(c.members) {
		switch {
		case m.state == memberFencing || m.state == memberWaiting:
		case m.state == memberCopying && c.head()-m.acked > maxLog:
			c.remove(m)
		default:
			least = min(least, m.acked)
		}
	}
	if n := least + 1 - c.base; n > 0 {
		c.log = slices.Delete(c.log, 0, int(n))
		c.base = least + 1
	}
}

// Tick handles the timers that have expired.
func (c *Coordinator) Tick(now clock.Time, out *Outbox) {
	for _, m := range slices.Clone(c.members) {
		c.watch(now, m, out)
	}
	c.advance(now, out)
}

// Deadline returns when Tick must be called.
func (c *Coordinator) Deadline() clock.Time {
	at := clock.Never
	for _, m := range c.members {
		at = clock.Min(at, m.deadline(c))
	}
	return at
}
