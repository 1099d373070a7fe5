package cloversteer

import (
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

const (
	// maxOpen bounds the unanswered appends that are remembered. When the list is full, the oldest
	// is forgotten and not repaired.
	maxOpen = 1024
	// resend is the time after which an unanswered repair is retransmitted, maxTries the number of
	// tries after which the connection is replaced.
	resend   = 4 * time.Millisecond
	maxTries = 7
	// tooLate is the age after which an append is not repaired any more. It is much shorter than
	// the lease, after which the nodes of a dead client are given to other clients.
	tooLate = time.Second
)

// Bound is the time within which the control plane sends an append that was lost together with its
// client, if the connection to the server is up and the repair is not lost: the timer, and the
// delay of a packet to the server.
const Bound = DefaultRepair + time.Millisecond

// DefaultRepair is the default of Config.Repair. It is longer than a server takes to answer, and
// longer than a live client waits before it retransmits.
const DefaultRepair = 20 * time.Millisecond

// open is an unanswered append.
type open struct {
	flow   *conntrack.Flow // nil: the flow has ended, so the switch will not see an answer
	psn    wire.PSN
	server netip.Addr
	eth    wire.AtomicETH // as it left the switch
	at     clock.Time
}

// link is a connection of the control plane to a server; it sends one repair at a time.
type link struct {
	switchconn.Shared
	psn   wire.PSN
	busy  *open
	sent  clock.Time
	tries int
}

// repair is the control plane: it sends unanswered appends again, on switch's connections (holes 30
// and 31).
type repair struct {
	open  []open // in the order in which they were sent
	links []*link
}

// remember adds an append that leaves the switch to the unanswered ones.
func (m *Machine) remember(now clock.Time, r *conntrack.Flow, server netip.Addr, f *wire.Frame) {
	p := &m.repair
	if len(p.open) == maxOpen {
		m.stats.Unremembered++
		p.open = p.open[:copy(p.open, p.open[1:])]
	}
	p.open = append(p.open, open{r, f.BTH.PSN, server, f.AtomicETH, now})
}

// answered removes an append whose answer has arrived.
func (m *Machine) answered(r *conntrack.Flow, psn wire.PSN) {
	p := &m.repair
	if i := slices.IndexFunc(p.open, func(o open) bool { return o.flow == r && o.psn == psn }); i >= 0 {
		p.open = slices.Delete(p.open, i, i+1)
	}
}

// Attach adds a connection of the control plane.
func (m *Machine) Attach(_ *pipeline.Ctx, s switchconn.Shared) bool {
	if s.Shard != switchconn.RepairShard {
		return false
	}
	m.repair.links = append(m.repair.links, &link{Shared: s, psn: s.SendPSN})
	return true
}

// Detach is called when a connection has ended. A repair that was in flight on it will be sent
// again on another one.
func (m *Machine) Detach(_ *pipeline.Ctx, k switchconn.Key, generation uint32) {
	p := &m.repair
	p.links = slices.DeleteFunc(p.links, func(l *link) bool {
		if l.Key != k || l.Generation != generation {
			return false
		}
		if l.busy != nil {
			p.open = slices.Insert(p.open, 0, *l.busy)
		}
		return true
	})
}

// Mine reports whether a queue pair belongs to a connection of the control plane.
func (m *Machine) Mine(qpn wire.QPN) bool {
	return slices.ContainsFunc(m.repair.links, func(l *link) bool { return l.OwnQPN == qpn })
}

// Owned handles the server's answer to a repair.
func (m *Machine) Owned(c *pipeline.Ctx, q *pipeline.Parsed) pipeline.Verdict {
	for _, l := range m.repair.links {
		if l.OwnQPN != q.BTH.DestQP || l.Server != q.SrcAddr().Unmap() {
			continue
		}
		switch {
		case l.busy == nil:
		case q.BTH.Opcode == wire.RCAtomicAck && q.BTH.PSN == l.psn:
			if q.AtomicAck == l.busy.eth.Compare {
				m.stats.Repaired++
			} else {
				m.stats.Whole++
			}
			l.busy, l.psn, l.tries = nil, l.psn.Add(1), 0
			m.Tick(c)
		case q.BTH.Opcode == wire.RCAck && q.AETH.Syndrome.IsNak():
			m.fail(c, l, "refused")
		}
		return pipeline.Consume()
	}
	return pipeline.Drop("not for the switch")
}

// fail ends a connection of the control plane, and asks the program to replace it. A repair that
// the server has refused is not sent again.
func (m *Machine) fail(c *pipeline.Ctx, l *link, why string) {
	if why == "refused" {
		l.busy = nil
	}
	m.stats.RepairsFailed++
	m.Detach(c, l.Key, l.Generation)
	if m.cfg.Failed != nil {
		m.cfg.Failed(c, l.Key, l.Generation, why)
	}
}

// Tick sends the repairs that are due.
func (m *Machine) Tick(c *pipeline.Ctx) {
	p := &m.repair
	before := len(p.open)
	p.open = slices.DeleteFunc(p.open, func(o open) bool { return c.Now.Sub(o.at) > tooLate })
	m.stats.TooLate += uint64(before - len(p.open))
	for _, l := range slices.Clone(p.links) {
		switch {
		case l.busy == nil || c.Now.Sub(l.sent) < resend:
		case l.tries == maxTries:
			m.fail(c, l, "silent")
		default:
			m.send(c, l)
		}
		if l.busy != nil {
			continue
		}
		i := slices.IndexFunc(p.open, func(o open) bool { return o.server == l.Server })
		if i < 0 || c.Now.Sub(p.open[i].at) < m.cfg.Repair {
			continue
		}
		o := p.open[i]
		p.open = slices.Delete(p.open, i, i+1)
		l.busy = &o
		m.send(c, l)
	}
}

// send transmits the current repair of a connection of the switch, for the first time or again. A
// repair is an append that was lost together with its client.
func (m *Machine) send(c *pipeline.Ctx, l *link) {
	l.sent = c.Now
	l.tries++
	f := l.To
	f.BTH.Opcode, f.BTH.PSN, f.BTH.AckReq, f.AtomicETH = wire.RCCmpSwap, l.psn, true, l.busy.eth
	m.stats.Repairs++
	c.Emit(&f, "the control plane sends an append again")
}

// Deadline returns when the next repair is due.
func (m *Machine) Deadline() clock.Time {
	at := clock.Never
	for _, l := range m.repair.links {
		if l.busy != nil {
			at = clock.Min(at, l.sent.Add(resend))
			continue
		}
		if i := slices.IndexFunc(m.repair.open, func(o open) bool { return o.server == l.Server }); i >= 0 {
			at = clock.Min(at, m.repair.open[i].at.Add(m.cfg.Repair))
		}
	}
	return at
}

// Response removes answered appends from the list, and forwards all answers unchanged.
func (m *Machine) Response(_ *pipeline.Ctx, s conntrack.Seen, p *pipeline.Parsed) pipeline.Verdict {
	if p.BTH.Opcode == wire.RCAtomicAck {
		m.answered(s.Flow, p.BTH.PSN)
	}
	return pipeline.Forward()
}

// Closed forgets the last data WRITE of the connection. Its unanswered appends are repaired all the
// same.
func (m *Machine) Closed(_ *pipeline.Ctx, r *conntrack.Flow) {
	if _, ok := r.Ext.(*flow); ok {
		r.Ext = nil
	}
	for i := range m.repair.open {
		if o := &m.repair.open[i]; o.flow == r {
			o.flow = nil
		}
	}
}
