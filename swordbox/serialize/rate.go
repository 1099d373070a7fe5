package serialize

import (
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/requester"
)

// Under a rule whose key slow says that the switch itself slows down (rules.Slowed.BySwitch), requests enter a
// shared connection at a rate. The rate is that of a reaction point as NICs have it (congestion.Flow): one for
// the connection, or one for each flow. A request whose time has not come is held, so that the client's own window
// slows the client. Flows with held requests take turns by bytes (deficit round robin), and none of their requests
// waits in the connection's own queue, where it would be before those of other clients.
//
// What the switch retransmits is not paced, and responses are not: the server sends those.

const (
	// frameOverhead is the longest header of a request with the Ethernet header and the FCS. A shorter request counts
	// for what it has.
	frameOverhead = 18 + 40 + 8 + 12 + 28 + 4 + fcs
	// fcs is what a frame has on a link behind its last byte here.
	fcs = 4
)

// rate is a rate of the switch. The zero value has none.
type rate struct {
	flow *congestion.Flow
	at   clock.Time // when a request that waits for the rate may leave; 0: none waits
}

// turn is the place of a flow among those that take turns on a shared connection.
type turn struct {
	credit int  // bytes that the flow may still send in this turn
	has    bool // it is the flow's turn
	passed bool // the turn has ended in this round of settle
	// since is when the flow's oldest request began to wait for a rate or its turn; 0: it does not wait.
	since clock.Time
	// told: the end of the longest wait has come, and settle has been told.
	told bool
	// rate is the rate for which that request waits; nil: for none.
	rate *rate
}

// turnBytes is what a flow may send in its turn: a request of the connection's path MTU with its headers.
func (k *link) turnBytes() int { return k.conn.Link().MTU + frameOverhead }

// longestWait is how long a request waits for a rate or its turn at most. A client whose requests do not leave for
// HoldTime counts as one that has given them up, and one that gets no answer at all ends its connection: so each
// flow sends a request in half of that, however low the rate is.
func (m *Machine) longestWait() time.Duration { return m.cfg.HoldTime / 2 }

// overdue reports whether the flow's oldest request has waited for that long.
func (t *turn) overdue(now clock.Time, longest time.Duration) bool {
	return t.since != 0 && now >= t.since.Add(longest)
}

// paced reports whether the flow's oldest request waits for a rate that lets none leave yet.
func (t *turn) paced(now clock.Time, longest time.Duration) bool {
	return t.rate != nil && t.rate.at > now && !t.overdue(now, longest)
}

// waits notes that the flow's oldest request waits for a rate; nil: for its turn. It returns false.
func (t *turn) waits(now clock.Time, r *rate) bool {
	if t.rate = r; t.since == 0 {
		t.since = now
	}
	return false
}

// of returns the flow of the rate, and makes it if there is none.
func (r *rate) of(s *server) *congestion.Flow {
	if r.flow == nil {
		r.flow = s.rates.NewFlow()
	}
	return r.flow
}

// ready reports whether the rate lets a request leave now; if it does not, at is when it will.
func (r *rate) ready(now clock.Time, s *server) bool {
	f := r.of(s)
	if f.Ready(now, 0) {
		r.at = 0
		return true
	}
	r.at = f.At()
	return false
}

// due reports whether a request waited for the rate and may leave now.
func (r *rate) due(now clock.Time) bool { return r.at != 0 && r.at <= now }

// deadline returns when the rate lets a waiting request leave.
func (r *rate) deadline() clock.Time {
	if r.at == 0 {
		return clock.Never
	}
	return r.at
}

// setParams asks for the parameters of the switch's rates. Those that are in use take them at once.
func (s *server) setParams() {
	if s.slow.BySwitch() {
		s.rates = s.m.cfg.Slowing(s.addr)
		s.rates.Algorithm = congestion.AlgorithmDCQCN // the others need the acknowledgements of a NIC
	}
}

// changeRates forgets all rates, because the rules that say who slows down have changed.
func (s *server) changeRates() {
	for _, k := range s.links {
		k.rate = rate{}
	}
	for _, l := range s.m.flows.list {
		if l != nil && l.s == s && l.phase != closed {
			l.rate, l.turn = rate{}, turn{}
			l.schedule()
		}
	}
	s.m.kick = true
}

// lower lowers the rate of a shared connection.
func (k *link) lower(now clock.Time) {
	k.s.m.slowed++
	k.rate.of(k.s).Notified(now)
}

// slowFlow lowers the rate of a flow, at most once in cnpInterval.
func (m *Machine) slowFlow(now clock.Time, id flowID) {
	l := m.flows.byTag(requester.Tag{Flow: id.flow, Generation: id.generation})
	if l == nil || l.replies.cnpAt > now {
		return
	}
	l.replies.cnpAt = now + cnpInterval
	m.slowed++
	l.rate.of(l.s).Notified(now)
}

// length is the length of the request's frame on a link.
func (g *placing) length() int { return g.f.Len() + fcs }

// mayEnter reports whether the request may enter a shared connection now: it is the flow's turn, the connection sends
// it at once, and the rate allows it. It is always true if the switch has no rate for requests to the server.
func (g *placing) mayEnter(shard int) bool {
	slow := g.l.s.slow
	if !slow.BySwitch() {
		return true
	}
	k := g.l.s.links[shard]
	if g.arrived && len(g.l.m.blocked.list) > 0 {
		g.l.m.kick = true // others wait: this request takes its turn behind them, in this step
		return g.l.turn.waits(g.c.Now, nil)
	}
	if !k.conn.SendsNow(g.f.BTH.Opcode, max(len(g.f.Payload), wordBytes(g.f.BTH.Opcode))) {
		return false // an answer of the server makes room, and settle runs
	}
	r := &g.l.rate
	if slow == rules.SlowConnection {
		r = &k.rate
	}
	if g.l.turn.overdue(g.c.Now, g.l.m.longestWait()) {
		return true
	}
	if !r.ready(g.c.Now, g.l.s) {
		return g.l.turn.waits(g.c.Now, r)
	}
	if !g.l.turn.has {
		g.l.turn.has = true
		g.l.turn.credit += k.turnBytes()
	}
	if g.l.turn.credit < g.length() {
		g.l.turn.has, g.l.turn.passed = false, true
		g.l.m.kick = true
		return g.l.turn.waits(g.c.Now, nil)
	}
	return true
}

// wordBytes is what the switch may add to the payload of an atomic.
func wordBytes(op wire.Opcode) int {
	if op.Is(wire.OpAtomic) {
		return 8
	}
	return 0
}

// enters counts the request, which enters a shared connection now, at the rate of the switch.
func (g *placing) enters(shard int) {
	if !g.l.s.slow.BySwitch() {
		return
	}
	n := g.length()
	g.l.turn.credit = max(0, g.l.turn.credit-n)
	g.l.turn.since, g.l.turn.told, g.l.turn.rate = 0, false, nil
	r := &g.l.rate
	if g.l.s.slow == rules.SlowConnection {
		r = &g.l.s.links[shard].rate
	}
	f := r.of(g.l.s)
	f.Sent(g.c.Now, n)
	if len(g.l.m.blocked.list) > 0 {
		r.at = max(g.c.Now, f.At()) // of those that wait, none may have been refused by this rate yet
	}
}
