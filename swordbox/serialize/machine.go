package serialize

import (
	"maps"
	"net/netip"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// Machine serialises the requests to all memory servers that have hardened rules. See the package
// comment.
type Machine struct {
	cfg      Config
	servers  []*server
	byAddr   map[netip.Addr]*server
	leaving  map[netip.Addr]*server // servers without rules that may have requests in flight; see Draining
	received uint64                 // congestion notifications of servers
	slowed   uint64                 // times that the switch has lowered a rate of its own
	byQPN    map[wire.QPN]*link     // key is link.ownQPN
	words    *atomiccache.Table
	// late is true if hosts may already have sent requests when the machine gets its next rules.
	late    bool
	held    pool
	flows   flowTable
	blocked blockedList
	kick    bool // true if a held request may have become free to go, so that settle must run
	due     clock.Queue
	scans   scans
	stats   Stats
	step    step
}

// step is scratch memory for the packet that the machine is handling.
type step struct {
	cover   []*atomiccache.Word
	payload [transform.WordLen]byte
	frame   wire.Frame // a held request that is being released
	tx      wire.Frame // an answer that the switch makes
	path    transform.Path
	note    string // description of the packet for captures
	// from is the note for captures about the server's packet, on a shared connection, that causes
	// the present answer. from.Made is true if no packet causes the answer.
	from transform.Note
}

var (
	_ handler.Machine  = (*Machine)(nil)
	_ handler.Bypasser = (*Machine)(nil)
)

func New(cfg Config) *Machine {
	cfg = cfg.withDefaults()
	return &Machine{
		cfg: cfg, late: cfg.Late, byAddr: make(map[netip.Addr]*server), leaving: make(map[netip.Addr]*server),
		byQPN: make(map[wire.QPN]*link),
		words: atomiccache.New(cfg.Words), held: newPool(cfg.Held), scans: scans{left: scanBurst}, step: step{from: transform.Note{Made: true}},
	}
}

// SetRules replaces the rules. The machine uses only the hardened rules with action move or
// atomics. A request in flight ends under the rules under which it was sent.
func (m *Machine) SetRules(set *rules.Set) {
	maps.Copy(m.leaving, m.byAddr)
	clear(m.byAddr)
	for _, s := range m.servers {
		s.moves = false
	}
	for _, r := range set.All() {
		if r.Mode != rules.Hardened || !r.Moves() {
			continue
		}
		s := m.serverOf(r.Server)
		s.moves = true
		s.want = max(s.want, r.NumShards())
		s.watch = s.watch || r.Action == rules.Atomics
		s.proves = s.proves || r.Action == rules.Move
		m.byAddr[r.Server] = s
		for _, a := range r.Also {
			m.byAddr[a] = s
		}
	}
	for _, s := range m.servers {
		s.setRules(set.Lookup(s.addr))
	}
	m.late = true
	for a := range m.byAddr {
		delete(m.leaving, a)
	}
	m.kick = m.kick || m.Draining()
}

// serverOf returns the server with the address that a rule names (rules.Rule.Server). It creates
// the server if there is none.
func (m *Machine) serverOf(a netip.Addr) *server {
	for _, s := range m.servers {
		if s.addr == a {
			s.want = 0
			return s
		}
	}
	s := &server{m: m, addr: a, index: uint16(len(m.servers))}
	m.servers = append(m.servers, s)
	return s
}

// Attach makes the machine use a new connection to a server. If the machine has a connection with
// the same key, the new one replaces it, and the requests of the old one end as Lost. Attach
// returns false, and does not use the connection, if the machine has no link with this key, if the
// server's QPN is 0, or if another link has the switch's QPN.
func (m *Machine) Attach(c *pipeline.Ctx, d switchconn.Shared) bool {
	for _, s := range m.servers {
		s.resize()
	}
	l := m.link(d.Key)
	if l != nil && l.generation == d.Generation && m.byQPN[d.OwnQPN] == l {
		return true // the machine already uses this connection
	}
	if l == nil || d.ServerQPN == 0 || m.byQPN[d.OwnQPN] != nil {
		return false
	}
	if l.conn.State() == requester.Up {
		m.Detach(c, d.Key, l.generation)
	}
	l.s.incarnation++
	if l.generation != 0 {
		l.s.breaks++
	}
	l.generation, l.ownQPN = d.Generation, d.OwnQPN
	m.byQPN[d.OwnQPN] = l
	l.conn.Attach(requester.LinkOf(&d))
	m.kick = true
	m.settle(c)
	return true
}

// Detach is called when a connection has ended. It has no effect if the machine already uses
// another generation of the connection.
func (m *Machine) Detach(c *pipeline.Ctx, k switchconn.Key, generation uint32) {
	l := m.link(k)
	if l == nil || l.generation != generation || m.byQPN[l.ownQPN] != l {
		return
	}
	delete(m.byQPN, l.ownQPN)
	l.forget()
	m.kick = true
	l.conn.Detach(c)
	m.settle(c)
}

func (m *Machine) link(k switchconn.Key) *link {
	for _, s := range m.servers { // including servers that have no rule any more
		if s.addr == k.Server && k.Shard >= 0 && k.Shard < len(s.links) {
			return s.links[k.Shard]
		}
	}
	return nil
}

func (m *Machine) Owned(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	l := m.byQPN[p.BTH.DestQP]
	if l == nil || l.conn.Link().Peer() != p.SrcAddr() {
		m.stats.Strangers++
		return pipeline.Drop(ReasonStranger)
	}
	if p.BTH.Opcode == wire.CNP {
		l.congested(c)
		return pipeline.Consume()
	}
	m.step.note = ""
	l.conn.Packet(c, &p.Frame)
	m.settle(c)
	return pipeline.Consume().With(m.step.note)
}

func (m *Machine) Tick(c *pipeline.Ctx) {
	for _, s := range m.servers {
		s.resize()
		for _, l := range s.links {
			if l.conn.Deadline() <= c.Now {
				l.conn.Tick(c)
				m.kick = true
			}
			if l.rate.due(c.Now) {
				l.rate.at = 0
				m.kick = true
			}
		}
	}
	for range m.due.Len() {
		i, at := m.due.Next()
		if at > c.Now {
			break
		}
		m.flows.list[i].tick(c)
	}
	m.settle(c)
}

func (m *Machine) Deadline() clock.Time {
	if m.kick {
		return 0
	}
	_, at := m.due.Next()
	at = clock.Min(at, m.words.Deadline())
	for _, s := range m.servers {
		for _, l := range s.links {
			at = clock.Min(at, clock.Min(l.conn.Deadline(), l.rate.deadline()))
		}
	}
	return at
}

// maxSettle bounds the rounds of settle in one step. The next Tick continues.
const maxSettle = 64

// spareEmits is how many packets of a step are reserved for answers; see mayRelease.
const spareEmits = 256

// mayRelease reports whether settle may release another request in this step. The switch drops
// packets beyond the limit of a step. So settle stops when only spareEmits packets are left for
// answers, and the next Tick continues.
func mayRelease(c *pipeline.Ctx) bool { return c.EmitsLeft() >= spareEmits }

// settle sends the held requests whose place has become free. If a round makes further places free,
// another round follows.
func (m *Machine) settle(c *pipeline.Ctx) {
	if m.Draining() {
		m.drain(c.Now)
	}
	for range maxSettle {
		for m.words.Changed(c.Now) != nil {
			m.kick = true
		}
		if !m.kick {
			return
		}
		m.kick = false
		for _, l := range m.blocked.list {
			if l.turn.paced(c.Now, m.longestWait()) {
				continue
			}
			before := l.waits.held.n
			l.release(c)
			l.waits.served = l.waits.held.n < before && !l.turn.has || l.turn.passed
			if l.turn.passed = false; l.waits.held.n == 0 {
				l.turn = turn{}
			}
		}
		m.blocked.prune()
		if !mayRelease(c) {
			return
		}
	}
}

// newSequencer makes the sequencer of a flow to a server, which is the switch's state of this flow.
// It is called for the first request of the flow that reaches the machine.
func (m *Machine) newSequencer(now clock.Time, r *conntrack.Flow, s *server) *sequencer {
	l := &sequencer{
		m: m, s: s, flow: r, generation: r.Generation, phase: partial, place: placeOwn, formers: formers{s.formersOf(now, r.Requester), now},
		conn:    clientConn{s: s, ops: clientOps{max: m.cfg.OwnOps}, proof: proof{breaks: s.breaks}},
		replies: replies{m: m, flow: r, window: window{max: m.cfg.Window}},
	}
	if r.First() {
		l.phase = untouched
	}
	m.flows.add(l)
	r.Ext = l
	return l
}

// Closed is called when a flow has ended. The server still completes the flow's requests on shared
// connections.
func (m *Machine) Closed(c *pipeline.Ctx, r *conntrack.Flow) {
	l, ok := r.Ext.(*sequencer)
	if !ok || l.phase == closed {
		return
	}
	r.Ext = nil
	// The last packet of a request may still be on its way to the server, and the machine does not
	// count the request any more.
	l.s.unsettled = l.s.unsettled || l.isForwarding()
	l.close()
	m.settle(c)
}

// ForgetWords makes the values of all words unknown. It is called for an operator, and returns the
// number of words.
func (m *Machine) ForgetWords() int {
	n := 0
	m.words.Each(func(w *atomiccache.Word) {
		w.Forget()
		n++
	})
	return n
}

// Kind is the registry entry of the hardened handler for the actions move and atomics.
var Kind = handler.Kind{
	Name: "hardened", Actions: []rules.Action{rules.Move, rules.Atomics}, Mode: rules.Hardened,
	New: func(e *handler.Env) handler.Handler {
		cfg := Config{Moving: e.Moving, Answered: e.Answered, Failed: e.Failed, Slowing: e.Slowing, Late: e.Late}
		cfg.Shared.Silence = e.Silence
		return New(cfg)
	},
	Listings: []handler.Listing{handler.NewListing(heldHelp, (*Machine).heldShares, printHeld)},
}

func (m *Machine) Kind() *handler.Kind { return &Kind }

// Wants lists the shared connections that a rule needs: one for each shard.
func (m *Machine) Wants(r *rules.Rule) []handler.Wanted {
	if r.Service == "" {
		return nil
	}
	list := make([]handler.Wanted, r.NumShards())
	for i := range list {
		list[i] = handler.Want(r, switchconn.Key{Server: r.Server, Shard: i})
	}
	return list
}

// Strict marks the machine as handler.Strict: the switch drops requests with unknown opcodes to the
// servers of its rules. Such a request could change words whose values the machine tracks.
func (m *Machine) Strict() {}
