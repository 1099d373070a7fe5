package steer

import (
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/mode"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// Config bounds a Machine. Zero values mean the defaults.
type Config struct {
	// Nodes is how many nodes are remembered; 0: 65536. Keys is how many keys have a tail; 0: 4096.
	Nodes, Keys int
	// Waiting is how many appends may wait; 0: 512. A switch holds 1024 packets for all of its programs.
	Waiting int
	// Hold is how long an append waits for the one before it; 0: 1 ms. It must be shorter than a NIC goes on trying.
	Hold time.Duration
	// Ring is how many requests of a connection are remembered; 0: 128.
	Ring int
	// Decay is after how many requests the counts by which hot keys are found are halved; 0: 65536.
	Decay int
}

func (c Config) withDefaults() Config {
	number := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	number(&c.Nodes, 1<<16)
	number(&c.Keys, 1<<12)
	number(&c.Waiting, 512)
	number(&c.Ring, 128)
	number(&c.Decay, 1<<16)
	if c.Hold <= 0 {
		c.Hold = time.Millisecond
	}
	return c
}

// Reasons of a Machine to drop a packet.
const (
	// ReasonHeld is that a copy of the packet waits already.
	ReasonHeld pipeline.Reason = "a copy waits"
	// ReasonGone is that the connection of a waiting packet has ended.
	ReasonGone pipeline.Reason = "connection ended"
	notMine    pipeline.Reason = "not for the switch"
)

// Machine steers the requests under rules of action steer. Make one with New.
type Machine struct {
	cfg    Config
	stores map[netip.Addr]*store // by the address that rules call Server
	wholes map[uint32]*whole     // by the number of the store
	hot    hot
	nodes  table[node]
	chains table[chain]
	wait   waiting
	serial uint64 // of nodes, and of what is known of chains
	lives  uint32 // of memory
	free   []*row // of connections that have ended
	stats  Stats
	// scratch is for a READ response that is changed.
	scratch []byte
}

var _ mode.Machine = (*Machine)(nil)

// New makes a Machine with empty tables.
func New(cfg Config) *Machine {
	cfg = cfg.withDefaults()
	return &Machine{cfg: cfg, stores: make(map[netip.Addr]*store), wholes: make(map[uint32]*whole)}
}

// begin allocates the tables, when the first store is met.
func (m *Machine) begin() {
	if m.nodes.slots == nil {
		m.nodes, m.chains, m.wait = newTable[node](m.cfg.Nodes), newTable[chain](m.cfg.Keys), newWaiting(m.cfg.Waiting)
		m.hot.begin(m.cfg.Decay)
		m.scratch = make([]byte, 0, 4096)
	}
}

// next is a number that was not used before.
func (m *Machine) next() uint64 {
	m.serial++
	return m.serial
}

// rowOf is what the machine remembers of a connection's requests; it begins with the first one.
func (m *Machine) rowOf(r *conntrack.Row) *row {
	if w, ok := r.Ext.(*row); ok {
		return w
	}
	var w *row
	if n := len(m.free); n > 0 {
		w, m.free = m.free[n-1], m.free[:n-1]
		clear(w.ring)
		w.held = none
	} else {
		w = &row{ring: make([]decision, m.cfg.Ring), held: none}
	}
	r.Ext = w
	return w
}

// Request decides about a request. New ones are looked at; of others only those are changed that were changed before.
func (m *Machine) Request(c *pipeline.Ctx, s conntrack.Seen, r *rules.Rule, p *pipeline.Parsed) pipeline.Verdict {
	w := m.rowOf(s.Row)
	if s.Class == conntrack.Duplicate {
		return m.repeat(c, w, p)
	}
	q := request{c: c, s: s, row: w, rule: r, p: p}
	if s.Class != conntrack.New {
		m.unsure(&q) // perhaps it is not carried out
		return pipeline.Forward()
	}
	m.letGo(c, w) // what waits of this row must leave first
	s.Row.Advance(s.Span)
	w.add(p.BTH.PSN, kindNone)
	if s.Row.Peer == nil {
		m.unsure(&q) // its answer is not recognised
		return pipeline.Forward()
	}
	if r == nil || r.Action != rules.Steer {
		return pipeline.Forward()
	}
	return m.fresh(&q)
}

// repeat sends a request that came before to where it was sent then (holes 25 and 32).
func (m *Machine) repeat(c *pipeline.Ctx, w *row, p *pipeline.Parsed) pipeline.Verdict {
	d := w.find(p.BTH.PSN)
	if d == nil {
		return pipeline.Forward()
	}
	if w.held != none && m.wait.list[w.held].psn == d.psn && c.Holding(m.wait.list[w.held].id) {
		m.stats.Impatient++
		return pipeline.Drop(ReasonHeld)
	}
	return m.again(c, d, p)
}

// again applies a decision to another copy of its request.
func (m *Machine) again(c *pipeline.Ctx, d *decision, p *pipeline.Parsed) pipeline.Verdict {
	switch {
	case !d.steered:
	case d.kind == kindAppend && p.BTH.Opcode.Is(opAtomic) && p.AtomicETH.VA == d.asked && p.AtomicETH.Compare == d.askedCompare:
		m.stats.Repeated++
		d.apply(&p.AtomicETH)
		return note(c, p, d)
	case d.kind == kindRead && p.BTH.Opcode.Is(opRead) && p.RETH.VA == d.asked:
		m.stats.Repeated++
		p.RETH.VA = d.to.va
		return note(c, p, d)
	}
	return pipeline.Forward()
}

// Response learns from the answer of an append, and from a superblock. Answers go on as they are, but for versions.
func (m *Machine) Response(c *pipeline.Ctx, s conntrack.Seen, p *pipeline.Parsed) pipeline.Verdict {
	w, ok := s.Row.Ext.(*row)
	if !ok {
		return pipeline.Forward()
	}
	d := w.find(p.BTH.PSN)
	if d == nil {
		return pipeline.Forward()
	}
	switch {
	case d.done:
	case d.kind == kindSuper && len(p.Payload) == superLen:
		d.done = true
		m.learn(d.server, d.to.va, d.rkey, p.Payload)
	case d.kind == kindAppend && p.BTH.Opcode == atomicAck:
		d.done = true
		m.answered(c, d, p.AtomicAck)
	}
	return m.translate(c, d, p)
}

// Owned has nothing to do: steering needs no connection of the switch.
func (m *Machine) Owned(*pipeline.Ctx, *pipeline.Parsed) pipeline.Verdict {
	return pipeline.Drop(notMine)
}

// Tick has nothing to do: what waits goes on by itself when its time has come, and what is late is seen by who comes next.
func (m *Machine) Tick(*pipeline.Ctx) {}

// Deadline is never.
func (m *Machine) Deadline() clock.Time { return clock.Never }

// Closed says that a row has ended. What waits of it is dropped: its queue pair is gone.
func (m *Machine) Closed(c *pipeline.Ctx, r *conntrack.Row) {
	w, ok := r.Ext.(*row)
	if !ok {
		return
	}
	if w.held != none {
		if c != nil {
			c.Discard(m.wait.list[w.held].id, ReasonGone)
		}
		m.unhold(w.held)
	}
	r.Ext = nil
	m.free = append(m.free, w)
}
