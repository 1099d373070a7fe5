package cloversteer

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Config bounds a Machine. Zero values mean the defaults.
type Config struct {
	// Nodes is how many nodes the switch remembers; 0 means 65536. Keys is how many chains it
	// follows; 0 means 4096.
	Nodes, Keys int
	// Waiting is how many requests may wait in the switch; 0 means 512. All programs of the switch
	// together may hold at most 1024 packets.
	Waiting int
	// Hold is how long an append waits for the previous append to its key; 0 means 1 ms. It must be
	// shorter than the timeout of clients' NICs.
	Hold time.Duration
	// Ring is how many decisions the machine remembers of a connection; 0 means 128.
	Ring int
	// Decay is the number of requests after which the count-min sketch of keys halves its counts; 0
	// means 65536.
	Decay int
}

func (c Config) withDefaults() Config {
	c.Nodes = cmp.Or(max(0, c.Nodes), 1<<16)
	c.Keys = cmp.Or(max(0, c.Keys), 1<<12)
	c.Waiting = cmp.Or(max(0, c.Waiting), 512)
	c.Ring = cmp.Or(max(0, c.Ring), 128)
	c.Decay = cmp.Or(max(0, c.Decay), 1<<16)
	c.Hold = cmp.Or(max(0, c.Hold), time.Millisecond)
	return c
}

// Reasons why a Machine drops a packet.
const (
	// ReasonHeld: the packet is a retransmission of a request that waits in the switch.
	ReasonHeld pipeline.Reason = "a copy waits"
	// ReasonGone: the connection of a waiting request has ended.
	ReasonGone pipeline.Reason = "connection ended"
	// ReasonTwice: the packet is the response to the CAS of an absorbed append. The CAS has failed,
	// because the append's node already had a successor. The client has given up this append.
	ReasonTwice pipeline.Reason = "append was given up"
	notMine     pipeline.Reason = "not for the switch"
)

// Machine steers the requests under rules of action steer: it sends appends and READs of Clover to
// the newest node of their key. Make one with New.
type Machine struct {
	// The machine needs no timer. The pipeline sends a held packet when the time for which it may
	// wait is over. If the append in flight to a key is not answered in time, the machine notices
	// that when the next append to the key arrives.
	pipeline.NoTimer

	cfg    Config
	stores stores
	chains chains
	hot    hot
	wait   waiting
	free   []*flow // memory of flows that have ended, to be reused
	stats  Stats
	// scratch is memory for a READ response that the switch translates.
	scratch []byte
}

var (
	_ handler.Machine  = (*Machine)(nil)
	_ handler.RuleUser = (*Machine)(nil)
)

func New(cfg Config) *Machine {
	m := &Machine{cfg: cfg.withDefaults()}
	m.stores, m.chains.stats = newStores(&m.stats), &m.stats
	return m
}

// SetRules replaces the rules. If the machine no longer sees all requests to a server, it forgets
// what it knows of the store's memory there, because it would not notice that the tails become
// stale. It learns this again when it sees the superblock again.
func (m *Machine) SetRules(set *rules.Set) {
	for _, server := range slices.SortedFunc(maps.Keys(m.stores.parts), netip.Addr.Compare) {
		if !m.stores.parts[server].shown(set.Lookup(server)) {
			m.stores.drop(server)
		}
	}
}

// learn handles the superblock at va of a server. It allocates the tables when the first store
// becomes known.
func (m *Machine) learn(server netip.Addr, va uint64, rkey uint32, b []byte) {
	m.stores.learn(server, va, rkey, b)
	if m.chains.nodes.slots == nil && len(m.stores.parts) != 0 {
		m.chains.nodes, m.chains.byKey = newTable[node](m.cfg.Nodes), newTable[chain](m.cfg.Keys)
		m.wait = newWaiting(m.cfg.Waiting)
		m.hot.begin(m.cfg.Decay)
		m.scratch = make([]byte, 0, 4096)
	}
}

// flowOf returns the machine's state of a flow. The first request of the flow creates it.
func (m *Machine) flowOf(of *conntrack.Flow) *flow {
	if fl, ok := of.Ext.(*flow); ok {
		return fl
	}
	var fl *flow
	if n := len(m.free); n > 0 {
		fl, m.free = m.free[n-1], m.free[:n-1]
		clear(fl.ring)
		fl.held = none
	} else {
		fl = &flow{ring: make([]decision, m.cfg.Ring), held: none}
	}
	of.Ext = fl
	return fl
}

// Request decides what happens to a request. A new request may be steered or held. A duplicate is
// changed only if the first copy of its request was changed.
func (m *Machine) Request(c *pipeline.Ctx, s conntrack.Seen, r *rules.Rule, p *pipeline.Parsed) pipeline.Verdict {
	fl := m.flowOf(s.Flow)
	if s.Class == conntrack.Duplicate {
		return m.repeat(c, fl, p)
	}
	if s.Class != conntrack.New {
		m.doubt(r, &p.Frame) // the server may refuse this request, because its PSN is not the expected one
		return pipeline.Forward()
	}
	m.letGo(c, fl) // the waiting request of the flow must leave before this one
	s.Flow.Advance(s.Span)
	fl.add(p.BTH.PSN, kindNone)
	if s.Flow.Peer == nil {
		m.doubt(r, &p.Frame) // the switch cannot recognise the response
		return pipeline.Forward()
	}
	if r == nil || r.Action != rules.Steer {
		return pipeline.Forward()
	}
	return m.fresh(&request{c: c, s: s, flow: fl, rule: r, p: p})
}

// repeat sends a retransmission to the node to which the switch sent the first copy (holes 25 and
// 32).
func (m *Machine) repeat(c *pipeline.Ctx, fl *flow, p *pipeline.Parsed) pipeline.Verdict {
	d := fl.find(p.BTH.PSN)
	if d == nil {
		return pipeline.Forward()
	}
	if fl.held != none && m.wait.list[fl.held].psn == d.psn && c.Holding(m.wait.list[fl.held].hold) {
		m.stats.Impatient++
		return pipeline.Drop(ReasonHeld)
	}
	return m.changeAgain(c, d, p)
}

// changeAgain changes a retransmission in the way in which decision d changed the first copy.
func (m *Machine) changeAgain(c *pipeline.Ctx, d *decision, p *pipeline.Parsed) pipeline.Verdict {
	switch {
	case !d.steered:
	case d.kind == kindAppend && p.BTH.Opcode.Has(wire.HasAtomicETH) &&
		p.AtomicETH.VA == d.asked && p.AtomicETH.Compare == d.askedCompare:
		m.stats.Repeated++
		d.apply(&p.AtomicETH)
		return note(c, p, d)
	case d.kind == kindRead && p.BTH.Opcode.Is(wire.OpRead) && p.RETH.VA == d.asked:
		m.stats.Repeated++
		p.RETH.VA = d.to.va
		return note(c, p, d)
	}
	return pipeline.Forward()
}

// Response learns from the responses to appends and to READs of a superblock. It changes only the
// version in a response. It drops only a response to an absorbed append that did not succeed.
func (m *Machine) Response(c *pipeline.Ctx, s conntrack.Seen, p *pipeline.Parsed) pipeline.Verdict {
	fl, ok := s.Flow.Ext.(*flow)
	if !ok {
		return pipeline.Forward()
	}
	d := fl.find(p.BTH.PSN)
	if d == nil {
		return pipeline.Forward()
	}
	switch {
	case d.done:
	case d.kind == kindSuper && len(p.Payload) == superLen:
		d.done = true
		m.learn(d.server, d.to.va, d.rkey, p.Payload)
	case d.kind == kindAppend && p.BTH.Opcode == wire.RCAtomicAck:
		d.done = true
		if k := m.chains.byKey.find(d.chain); k != nil && m.chains.answered(k, d, p.AtomicAck) {
			if p.AtomicAck == d.compare {
				m.absorb(c, k, d)
			}
			m.goOn(c, k)
		}
	}
	return m.translate(c, d, p)
}

// Owned drops packets that are addressed to the switch. Steering needs no switch's connection.
func (m *Machine) Owned(*pipeline.Ctx, *pipeline.Parsed) pipeline.Verdict {
	return pipeline.Drop(notMine)
}

// Closed is called when a flow has ended. It drops the waiting request of the flow, because the
// client's queue pair no longer exists.
func (m *Machine) Closed(c *pipeline.Ctx, of *conntrack.Flow) {
	fl, ok := of.Ext.(*flow)
	if !ok {
		return
	}
	if fl.held != none {
		if c != nil {
			c.Discard(m.wait.list[fl.held].hold, ReasonGone)
		}
		m.unhold(fl.held)
	}
	of.Ext = nil
	m.free = append(m.free, fl)
}
