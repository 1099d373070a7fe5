package paper

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rewrite"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// assumedMTU is the path MTU of connections of which nothing is known: that of the paper's testbed.
const assumedMTU = 1024

// Request sends a request on: a new one on the connection that its address chooses, a retransmission as the first time
// (paper, section 4.1).
func (m *Machine) Request(c *pipeline.Ctx, s conntrack.Seen, r *rules.Rule, p *pipeline.Parsed) pipeline.Verdict {
	from := clientOf(s.Row)
	if from == nil {
		if r == nil || s.Class != conntrack.New || !s.Alone {
			if s.Class == conntrack.New {
				s.Row.Advance(s.Span)
			}
			return pipeline.Forward()
		}
		from = m.join(s.Row, m.server(r.Server), p.BTH.PSN)
	}
	if s.Class == conntrack.New && s.Span != 0 {
		s.Row.Advance(s.Span)
	}
	// The highest PSN seen decides what is new. A request behind a lost one is new, and the lost one, when it comes, is
	// taken for a retransmission (hole 41).
	if wire.Diff(p.BTH.PSN, from.in) <= 0 {
		return m.again(c, from, p)
	}
	span := max(1, s.Span)
	if s.Span == 0 {
		span = (int(p.RETH.Length) + assumedMTU - 1) / assumedMTU
	}
	from.in = p.BTH.PSN.Add(span - 1)
	via := from
	if r != nil && movable(p, span) {
		via = from.server.borrow(target(p), r.NumShards())
	}
	return m.send(c, via, m.enter(c.Now, from, via, span, r, p), p)
}

// movable reports whether a request may go to another connection: it is one packet, as is its answer, and needs nothing
// of the connection that it came on.
func movable(p *pipeline.Parsed, span int) bool {
	op := p.BTH.Opcode
	return op == wire.RCWriteOnly || op == wire.RCReadRequest && span == 1 || op.Is(wire.OpAtomic)
}

func target(p *pipeline.Parsed) uint64 {
	va, _ := rewrite.Target(&p.Frame)
	return va
}

// enter makes the map entry of a new request, and decides what becomes of it. Nothing holds it back if its place is still
// in use (hole 12), or if the server has as many READs and atomics to do as it takes (hole 7).
func (m *Machine) enter(now clock.Time, from, via *client, span int, r *rules.Rule, p *pipeline.Parsed) *entry {
	e := entry{from: from, psn: p.BTH.PSN, at: via.out.Next(), span: span, op: p.BTH.Opcode, since: now}
	via.out = via.out.Add(span)
	if via != from {
		m.stats.Moved++
		from.moved++
	}
	if p.BTH.Opcode.Is(wire.OpAtomic) && r != nil && r.Action == rules.Atomics {
		m.foresee(&e, via.server, p)
	}
	if via.open(e) {
		m.stats.Overwritten++
	}
	return via.slot(e.at)
}

// foresee turns an atomic on a known word into a WRITE; the answer of one on an unknown word makes it known.
func (m *Machine) foresee(e *entry, s *server, p *pipeline.Parsed) {
	w := s.word(p.AtomicETH.VA)
	if w == nil || !w.known {
		m.stats.PassedThrough++
		e.word, e.compare, e.next = w, p.AtomicETH.Compare, p.AtomicETH.SwapOrAdd
		return
	}
	e.what = replaced
	e.prior, e.value = w.decide(&p.Frame)
	m.stats.Replaced++
	if e.op == wire.RCCmpSwap && e.prior != p.AtomicETH.Compare {
		m.stats.Failed++
	}
}

// again sends a retransmission as it was sent the first time. Its answer may come for the second time: the entry is open
// again. Part of a READ cannot be asked for again (hole 6), nor what has no entry (holes 14 and 41).
func (m *Machine) again(c *pipeline.Ctx, from *client, p *pipeline.Parsed) pipeline.Verdict {
	m.stats.Retransmitted++
	t := &from.sent[p.BTH.PSN%ringSize]
	if t.via == nil || t.psn != p.BTH.PSN {
		m.stats.Forgotten++
		return pipeline.Drop(ReasonForgotten)
	}
	e := t.via.find(t.at)
	if e == nil || e.from != from {
		m.stats.Forgotten++
		return pipeline.Drop(ReasonForgotten)
	}
	if !e.open {
		e.open = true
		from.entries++
	}
	return m.send(c, t.via, e, p)
}

// send rewrites a request by its map entry.
func (m *Machine) send(c *pipeline.Ctx, via *client, e *entry, p *pipeline.Parsed) pipeline.Verdict {
	n := rewrite.Note{From: p.BTH.Opcode, Conn: via.row.ID, PSN: p.BTH.PSN, NewPSN: e.at}
	if e.what == replaced {
		m.replace(&p.Frame, e.value)
		n.Show, n.Value, n.Prior = rewrite.ShowValue|rewrite.ShowPrior, e.value, e.prior
	}
	if via == e.from && e.what == asIs && e.at == p.BTH.PSN {
		return pipeline.Forward()
	}
	if via == e.from {
		rewrite.Renumber(&p.Frame, e.at)
		n.Conn = 0
	} else {
		// The connection is lent: a WRITE without AckReq stays without (hole 11).
		via.lent = true
		via.toServer().Apply(&p.Frame)
		p.BTH.PSN = e.at
	}
	v := pipeline.Rewrite()
	if c.Observed() {
		n.To = p.BTH.Opcode
		v = v.With(n.String())
	}
	return v
}
