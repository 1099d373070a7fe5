package published

import (
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/dial"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

const (
	// maxOpen bounds the appends that are remembered until they are answered; the oldest is forgotten, and not repaired.
	maxOpen = 1024
	// resend is when a repair is sent again, maxTries how often before the connection is made anew.
	resend   = 4 * time.Millisecond
	maxTries = 7
	// tooLate is when an append is not repaired any more: long before a dead client's nodes are given to others, which is after its lease.
	tooLate = time.Second
)

// Bound is the time in which an append that was lost with its client is sent by the control plane, if its connection to the server is up
// and nothing of that is lost: the timer, and a packet there.
const Bound = DefaultRepair + time.Millisecond

// DefaultRepair is Config.Repair by default: longer than an answer ever takes, and than a client that lives waits before it sends again.
const DefaultRepair = 20 * time.Millisecond

// open is an append that has not been answered.
type open struct {
	row    *conntrack.Row // nil: it has ended, and nothing answers
	psn    wire.PSN
	server netip.Addr
	eth    wire.AtomicETH // as it was sent
	at     clock.Time
}

// link is a connection of the control plane to a server; it sends one repair at a time.
type link struct {
	dial.Shared
	psn   wire.PSN
	busy  *open
	sent  clock.Time
	tries int
}

// repair is the control plane: it sends appends again that nobody has answered, on connections of its own (holes 30 and 31).
type repair struct {
	open  []open // in the order in which they were sent
	links []*link
}

// remember notes an append that leaves the switch.
func (m *Machine) remember(now clock.Time, r *conntrack.Row, server netip.Addr, f *wire.Frame) {
	p := &m.repair
	if len(p.open) == maxOpen {
		m.stats.Unremembered++
		p.open = p.open[:copy(p.open, p.open[1:])]
	}
	p.open = append(p.open, open{r, f.BTH.PSN, server, f.AtomicETH, now})
}

// answered forgets an append whose answer comes by.
func (m *Machine) answered(r *conntrack.Row, psn wire.PSN) {
	p := &m.repair
	if i := slices.IndexFunc(p.open, func(o open) bool { return o.row == r && o.psn == psn }); i >= 0 {
		p.open = slices.Delete(p.open, i, i+1)
	}
}

// Attach brings a connection of the control plane.
func (m *Machine) Attach(_ *pipeline.Ctx, s dial.Shared) bool {
	if s.Shard != dial.RepairShard {
		return false
	}
	m.repair.links = append(m.repair.links, &link{Shared: s, psn: s.SendPSN})
	return true
}

// Detach says that a connection is no more. A repair that was under way on it is due again.
func (m *Machine) Detach(_ *pipeline.Ctx, k dial.Key, generation uint32) {
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

// Mine reports whether a queue pair is one of the control plane.
func (m *Machine) Mine(qpn wire.QPN) bool {
	return slices.ContainsFunc(m.repair.links, func(l *link) bool { return l.OwnQPN == qpn })
}

// Owned takes what the server answers to a repair.
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

// fail gives a connection up: another one is made. A repair that the server refuses is not tried again.
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

// send sends the repair that is under way.
func (m *Machine) send(c *pipeline.Ctx, l *link) {
	l.sent = c.Now
	l.tries++
	f := l.To
	f.BTH.Opcode, f.BTH.PSN, f.BTH.AckReq, f.AtomicETH = wire.RCCmpSwap, l.psn, true, l.busy.eth
	m.stats.Repairs++
	c.Emit(&f, "the control plane sends an append again")
}

// Deadline is when the next repair is due.
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

// Response notes that an append has its answer. Answers go on as they are.
func (m *Machine) Response(_ *pipeline.Ctx, s conntrack.Seen, p *pipeline.Parsed) pipeline.Verdict {
	if p.BTH.Opcode == wire.RCAtomicAck {
		m.answered(s.Row, p.BTH.PSN)
	}
	return pipeline.Forward()
}

// Closed forgets what a connection has written. What it has not been told is repaired all the same.
func (m *Machine) Closed(_ *pipeline.Ctx, r *conntrack.Row) {
	if _, ok := r.Ext.(*row); ok {
		r.Ext = nil
	}
	for i := range m.repair.open {
		if o := &m.repair.open[i]; o.row == r {
			o.row = nil
		}
	}
}
