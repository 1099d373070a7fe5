package cloversteer

import (
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

const (
	// maxOpen is how many unanswered appends the control plane remembers. When the list is full, it
	// forgets the oldest one and does not repair it.
	maxOpen = 1024
	// resend is how long the control plane waits for the answer to a repair before it retransmits
	// the repair for the first time. silence is how long it waits before the connection is
	// replaced.
	resend  = 4 * time.Millisecond
	silence = 28 * time.Millisecond
	// tooLate is the age from which an append is no longer repaired. It is much shorter than the
	// lease; after the lease the nodes of a dead client are given to other clients.
	tooLate = time.Second
)

// Bound is how long it takes until the control plane has repaired a lost append of a dead client,
// if the connection to the server is up and the repair is not lost. It is the sum of DefaultRepair
// and the delay of a packet to the server.
const Bound = DefaultRepair + time.Millisecond

// DefaultRepair is the default of Config.Repair, the time from an append to its repair if no answer
// has come. A server answers in less time, and a live client retransmits in less time.
const DefaultRepair = 20 * time.Millisecond

// open is an unanswered append.
type open struct {
	flow   *conntrack.Flow // nil means that the flow has ended, so the switch will not see an answer
	psn    wire.PSN
	server netip.Addr
	eth    wire.AtomicETH // the operands with which the append left the switch
	at     clock.Time
}

// link is a connection of the control plane to a server. It sends one repair at a time, and handles
// the results of its requester.
type link struct {
	switchconn.Shared
	m    *Machine
	conn *requester.Conn
	busy *open // the append whose repair is in flight; nil means that there is none
}

// repair is the control plane. It sends unanswered appends again, on the switch's connections
// (holes 30 and 31).
type repair struct {
	open  []open // the unanswered appends, in the order in which they were sent
	links []*link
}

// remember is called when an append leaves the switch, and adds it to the list of unanswered
// appends.
func (m *Machine) remember(now clock.Time, r *conntrack.Flow, server netip.Addr, f *wire.Frame) {
	p := &m.repair
	if len(p.open) == maxOpen {
		m.stats.Unremembered++
		p.open = p.open[:copy(p.open, p.open[1:])]
	}
	p.open = append(p.open, open{r, f.BTH.PSN, server, f.AtomicETH, now})
}

// Attach adds a connection of the control plane.
func (m *Machine) Attach(_ *pipeline.Ctx, s switchconn.Shared) bool {
	if s.Shard != switchconn.RepairShard {
		return false
	}
	if slices.ContainsFunc(m.repair.links, func(l *link) bool { return l.Generation == s.Generation }) {
		return true // the program offers the same connection again
	}
	l := &link{Shared: s, m: m}
	l.conn = requester.New(requester.Config{Number: s.Generation, Ring: 1, Waiting: 1, RTO: resend, Silence: silence}, l)
	l.conn.Attach(requester.LinkOf(&s))
	m.repair.links = append(m.repair.links, l)
	return true
}

// Detach is called when a connection has ended. A repair that was in flight on it will be sent
// again on another connection.
func (m *Machine) Detach(c *pipeline.Ctx, k switchconn.Key, generation uint32) {
	p := &m.repair
	i := slices.IndexFunc(p.links, func(l *link) bool { return l.Key == k && l.Generation == generation })
	if i < 0 {
		return
	}
	l := p.links[i]
	p.links = slices.Delete(p.links, i, i+1)
	l.conn.Detach(c)
}

// Mine reports whether a queue pair of the switch belongs to a connection on which the control
// plane repairs lost appends.
func (m *Machine) Mine(qpn wire.QPN) bool {
	return slices.ContainsFunc(m.repair.links, func(l *link) bool { return l.OwnQPN == qpn })
}

// Owned handles a packet to a queue pair of the switch: the server's answer to a repair, which is the
// CAS by which the control plane appends a node again.
func (m *Machine) Owned(c *pipeline.Ctx, q *pipeline.Parsed) pipeline.Verdict {
	for _, l := range m.repair.links {
		if l.OwnQPN != q.BTH.DestQP || l.Server != q.SrcAddr().Unmap() {
			continue
		}
		l.conn.Packet(c, &q.Frame)
		m.Tick(c)
		return pipeline.Consume()
	}
	return pipeline.Drop("not for the switch")
}

// Done is called when a repair has ended. A repair that the server may not have executed is sent
// again. One that the server has refused is not.
func (l *link) Done(_ *pipeline.Ctx, _ requester.Tag, a requester.Answer) {
	m, o := l.m, l.busy
	l.busy = nil
	switch {
	case a.Kind == requester.Atomic && a.Prior == o.eth.Compare:
		m.stats.Repaired++
	case a.Kind == requester.Atomic:
		m.stats.Whole++
	case a.Kind == requester.Lost || a.Kind == requester.Returned:
		m.repair.open = slices.Insert(m.repair.open, 0, *o)
	}
}

// Retry returns false: a refused repair is not sent in another form.
func (l *link) Retry(requester.Tag) bool { return false }

// Failed is called when the connection has failed. It asks the program for a new one.
func (l *link) Failed(c *pipeline.Ctx, why string) {
	m := l.m
	m.stats.RepairsFailed++
	m.repair.links = slices.DeleteFunc(m.repair.links, func(o *link) bool { return o == l })
	if m.cfg.Failed != nil {
		m.cfg.Failed(c, l.Key, l.Generation, why)
	}
}

// Describe says in captures why the control plane sends an append again.
func (l *link) Describe(_ requester.Tag, n *transform.Note) {
	n.Made, n.Why = true, "the control plane sends an append again"
}

// Tick sends the repairs that are due.
func (m *Machine) Tick(c *pipeline.Ctx) {
	p := &m.repair
	before := len(p.open)
	p.open = slices.DeleteFunc(p.open, func(o open) bool { return c.Now.Sub(o.at) > tooLate })
	m.stats.TooLate += uint64(before - len(p.open))
	for _, l := range slices.Clone(p.links) {
		if l.conn.Deadline() <= c.Now {
			sent := l.conn.Stats().Sent
			l.conn.Tick(c)
			m.stats.Repairs += l.conn.Stats().Sent - sent
		}
		if l.busy != nil || l.conn.State() != requester.Up {
			continue
		}
		i := slices.IndexFunc(p.open, func(o open) bool { return o.server == l.Server })
		if i < 0 || c.Now.Sub(p.open[i].at) < m.cfg.Repair {
			continue
		}
		o := p.open[i]
		p.open = slices.Delete(p.open, i, i+1)
		l.busy = &o
		m.stats.Repairs++
		f := wire.Frame{}
		f.BTH.Opcode, f.AtomicETH = wire.RCCmpSwap, o.eth
		l.conn.Submit(c, &f, requester.Tag{}) // there is room, because the connection carries one request at a time
	}
}

// Deadline returns when Tick must be called: when a repair is due, or a requester's timer expires.
func (m *Machine) Deadline() clock.Time {
	at := clock.Never
	for _, l := range m.repair.links {
		if l.busy != nil {
			at = clock.Min(at, l.conn.Deadline())
			continue
		}
		if i := slices.IndexFunc(m.repair.open, func(o open) bool { return o.server == l.Server }); i >= 0 {
			at = clock.Min(at, m.repair.open[i].at.Add(m.cfg.Repair))
		}
	}
	return at
}

// Response removes an answered append from the list. It forwards every answer unchanged.
func (m *Machine) Response(_ *pipeline.Ctx, s conntrack.Seen, p *pipeline.Parsed) pipeline.Verdict {
	if p.BTH.Opcode == wire.RCAtomicAck {
		list := m.repair.open
		if i := slices.IndexFunc(list, func(o open) bool { return o.flow == s.Flow && o.psn == p.BTH.PSN }); i >= 0 {
			m.repair.open = slices.Delete(list, i, i+1)
		}
	}
	return pipeline.Forward()
}

// Closed forgets the tracks of the connection. Its unanswered appends are still repaired.
func (m *Machine) Closed(_ *pipeline.Ctx, r *conntrack.Flow) {
	if _, ok := r.Ext.(*tracks); ok {
		r.Ext = nil
	}
	for i := range m.repair.open {
		if o := &m.repair.open[i]; o.flow == r {
			o.flow = nil
		}
	}
}
