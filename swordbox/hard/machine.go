package hard

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/dial"
	"github.com/rdmalab/rdmalab/swordbox/hard/shared"
	"github.com/rdmalab/rdmalab/swordbox/mode"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rewrite"
	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/swordbox/words"
)

// Machine serialises the requests to all memory servers under rules of mode hard. See the package comment.
type Machine struct {
	cfg     Config
	servers []*server
	byAddr  map[netip.Addr]*server
	leaving map[netip.Addr]*server // see Draining
	byQPN   map[wire.QPN]*link     // by OwnQPN
	words   *words.Table
	held    pool
	lanes   []*lane // by index; nil is free
	free    []uint32
	serial  uint32
	// blocked are lanes with held packets, in the order in which they began to wait.
	blocked []*lane
	again   []*lane // scratch
	kick    bool    // something has ended that a blocked lane may wait for
	due     clock.Queue

	scans scans
	stats Stats

	// Of the current step.
	cover   []*words.Word
	payload [rewrite.WordLen]byte
	frame   wire.Frame // of a held packet
	tx      wire.Frame // of an answer
	path    rewrite.Path
	// Of the request that is being placed, as it came.
	rawPSN    wire.PSN
	rawAckReq bool
	// inPlace says that a request may be turned into the packet for the shared connection; now says that it was.
	inPlace, now bool
	note         string       // of the packet at hand
	from         rewrite.Note // the answer of a shared connection at hand
}

var _ mode.Machine = (*Machine)(nil)

// New makes a Machine without rules.
func New(cfg Config) *Machine {
	cfg = cfg.withDefaults()
	return &Machine{
		cfg: cfg, byAddr: make(map[netip.Addr]*server), leaving: make(map[netip.Addr]*server), byQPN: make(map[wire.QPN]*link), words: words.New(cfg.Words),
		held: pool{max: cfg.Held}, scans: scans{left: scanBurst}, from: rewrite.Note{Made: true},
	}
}

// SetRules says which requests move. Only the rules of mode hard count. Requests that are under way end as they began.
func (m *Machine) SetRules(set *rules.Set) {
	for a, s := range m.byAddr {
		m.leaving[a] = s
	}
	clear(m.byAddr)
	for _, s := range m.servers {
		s.moves, s.rules = false, nil
	}
	for _, r := range set.All() {
		if r.Mode != rules.Hard || !r.Moves() {
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
		for _, r := range set.Lookup(s.addr) {
			if r.Mode == rules.Hard {
				s.rules = append(s.rules, r)
			}
		}
		s.resize()
	}
	for a := range m.byAddr {
		delete(m.leaving, a)
	}
	m.kick = m.kick || m.Draining()
}

// serverOf finds or makes the server with the address that rules call Server.
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

// Attach brings a connection to a server. One that is there already is replaced: its requests are lost.
func (m *Machine) Attach(c *pipeline.Ctx, d dial.Shared) bool {
	for _, s := range m.servers {
		s.resize()
	}
	l := m.link(d.Key)
	if l == nil || d.ServerQPN == 0 || m.byQPN[d.OwnQPN] != nil {
		return false
	}
	if l.conn.State() == shared.Up {
		m.Detach(c, d.Key, l.generation)
	}
	l.s.life++
	if l.generation != 0 {
		l.s.breaks++
	}
	l.generation, l.ownQPN = d.Generation, d.OwnQPN
	m.byQPN[d.OwnQPN] = l
	l.conn.Attach(shared.Link{
		To: pathTo(&d), OwnQPN: d.OwnQPN, SendPSN: d.SendPSN, RecvPSN: d.RecvPSN, MTU: d.MTU, Depth: d.Depth,
	})
	m.kick = true
	m.settle(c)
	return true
}

func pathTo(d *dial.Shared) rewrite.Path {
	p := rewrite.PathOf(&d.To)
	p.DestQP = d.ServerQPN
	return p
}

// Detach says that a connection is no more. One of another generation is passed over.
func (m *Machine) Detach(c *pipeline.Ctx, k dial.Key, generation uint32) {
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

func (m *Machine) link(k dial.Key) *link {
	for _, s := range m.servers { // also one that has no rule any more
		if s.addr == k.Server && k.Shard >= 0 && k.Shard < len(s.links) {
			return s.links[k.Shard]
		}
	}
	return nil
}

// Owned takes a packet to one of the switch's queue pairs.
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
	m.note = ""
	l.conn.Packet(c, &p.Frame)
	m.settle(c)
	return pipeline.Consume().With(m.note)
}

// Tick does what is due.
func (m *Machine) Tick(c *pipeline.Ctx) {
	for _, s := range m.servers {
		s.resize()
		for _, l := range s.links {
			if l.conn.Deadline() <= c.Now {
				l.conn.Tick(c)
				m.kick = true
			}
		}
	}
	for range m.due.Len() {
		i, at := m.due.Next()
		if at > c.Now {
			break
		}
		m.lanes[i].tick(c)
	}
	m.settle(c)
}

// Deadline is when Tick wants to be called.
func (m *Machine) Deadline() clock.Time {
	if m.kick {
		return 0
	}
	_, at := m.due.Next()
	at = clock.Min(at, m.words.Deadline())
	for _, s := range m.servers {
		for _, l := range s.links {
			at = clock.Min(at, l.conn.Deadline())
		}
	}
	return at
}

// maxSettle bounds the rounds of settle in a step; what is left is done in the next Tick.
const maxSettle = 64

// settle lets held packets go on whose wait may be over.
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
		for _, l := range m.blocked {
			before := l.held.n
			l.release(c)
			l.served = l.held.n < before
		}
		m.forgetUnblocked()
	}
}

// forgetUnblocked takes lanes without held packets out of the list. Those that were served are the last in the next round, so
// that nobody with many requests keeps the others from a word.
func (m *Machine) forgetUnblocked() {
	m.again = m.again[:0]
	n := 0
	for _, l := range m.blocked {
		switch {
		case l.held.n == 0 && !l.overflow:
			l.blocked = false
		case l.served:
			m.again = append(m.again, l)
		default:
			m.blocked[n] = l
			n++
		}
		l.served = false
	}
	n += copy(m.blocked[n:], m.again)
	clear(m.blocked[n:])
	m.blocked = m.blocked[:n]
}

// newLane makes a lane for a row towards a server, for the request at hand.
func (m *Machine) newLane(now clock.Time, r *conntrack.Row, s *server) *lane {
	m.serial++
	l := &lane{
		m: m, s: s, row: r, generation: r.Generation, serial: m.serial, loose: true, place: placeOwn, whole: r.First(),
		window: window{max: m.cfg.Window}, ops: ownOps{max: m.cfg.OwnOps}, proof: proof{breaks: s.breaks},
		formers: s.formers(now), began: now,
	}
	if n := len(m.free); n > 0 {
		l.index = m.free[n-1]
		m.free = m.free[:n-1]
		m.lanes[l.index] = l
	} else {
		l.index = uint32(len(m.lanes))
		m.lanes = append(m.lanes, l)
	}
	r.Ext = l
	return l
}

// Closed says that a row has ended. What it has on shared connections still ends there.
func (m *Machine) Closed(c *pipeline.Ctx, r *conntrack.Row) {
	l, ok := r.Ext.(*lane)
	if !ok || l.closed {
		return
	}
	r.Ext = nil
	l.close()
	m.settle(c)
}
