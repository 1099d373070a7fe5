package serialize

import (
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// assumedMTU is the path MTU in bytes that the switch assumes if it does not know the path MTU of a
// connection. It is the path MTU of the paper's testbed.
const assumedMTU = 1024

// Request forwards a request. A new request under a rule goes to the connection that its address
// selects, if it may move (movable). A retransmission is sent in the same way as the first copy
// (paper, section 4.1).
func (m *Machine) Request(c *pipeline.Ctx, s conntrack.Seen, r *rules.Rule, p *pipeline.Parsed) pipeline.Verdict {
	from := clientOf(s.Flow, p.UDP.SrcPort)
	if from == nil {
		// If the flow has another client already, the request comes by another port, and the switch does
		// not know that others of the same queue pair may be in flight (hole 23).
		known := newestOf(s.Flow) != nil
		if r == nil || !known && (s.Class != conntrack.New || !s.Alone) {
			if s.Class == conntrack.New {
				s.Flow.Advance(s.Span)
			}
			return pipeline.Forward()
		}
		if from = m.join(s.Flow, m.server(r.Server), p.UDP.SrcPort, p.BTH.PSN); from == nil {
			if s.Class == conntrack.New {
				s.Flow.Advance(s.Span)
			}
			return pipeline.Forward()
		}
	}
	if s.Class == conntrack.New && s.Span != 0 {
		s.Flow.Advance(s.Span)
	}
	// A request is new if its PSN is higher than the highest one seen so far. So a request behind a
	// lost one is new; when the client sends the lost one again, it is taken for one that the switch
	// has already seen (hole 41).
	if wire.Diff(p.BTH.PSN, from.in) <= 0 {
		return m.sendAgain(c, from, p)
	}
	span := max(1, s.Span)
	if s.Span == 0 {
		span = (int(p.RETH.Length) + assumedMTU - 1) / assumedMTU
	}
	from.in = p.BTH.PSN.Add(span - 1)
	via := from
	if r != nil && movable(p, span) {
		va, _, _, _ := transform.Target(&p.Frame)
		via = from.server.borrow(va, r.NumShards())
	}
	return m.send(c, via, m.enter(c.Now, from, via, span, r, p), p)
}

// movable reports whether a request may move to another connection: it is one packet, its answer is
// one packet, and it does not depend on the state of its client's connection.
func movable(p *pipeline.Parsed, span int) bool {
	op := p.BTH.Opcode
	return op == wire.RCWriteOnly || op == wire.RCReadRequest && span == 1 || isAtomic(op)
}

// isAtomic reports whether an operation is CMP_SWAP or FETCH_ADD. The published program does not
// recognise masked atomics (hole 39).
func isAtomic(op wire.Opcode) bool { return op == wire.RCCmpSwap || op == wire.RCFetchAdd }

// enter makes the map entry of a new request, and decides how the switch sends it. The request does
// not wait until its place in the ring is free (hole 12), or until the server can accept another
// READ or atomic (hole 7).
func (m *Machine) enter(now clock.Time, from, via *client, span int, r *rules.Rule, p *pipeline.Parsed) *entry {
	e := entry{from: from, psn: p.BTH.PSN, at: via.out.Next(), span: span, op: p.BTH.Opcode, since: now}
	via.out = via.out.Add(span)
	if via != from {
		m.stats.Moved++
		from.moved++
	}
	if isAtomic(p.BTH.Opcode) && r != nil && r.Action == rules.Atomics {
		m.foresee(&e, via.server, p)
	}
	if via.open(e) {
		m.stats.Overwritten++
	}
	return via.slot(e.at)
}

// foresee replaces an atomic on a known word by a WRITE. An atomic on an unknown word passes
// unchanged, and its answer makes the word known.
func (m *Machine) foresee(e *entry, s *server, p *pipeline.Parsed) {
	w := s.word(p.AtomicETH.VA)
	if w == nil || !w.known {
		m.stats.PassedThrough++
		e.word, e.compare, e.next = w, p.AtomicETH.Compare, p.AtomicETH.SwapOrAdd
		return
	}
	e.sentAs = replaced
	e.prior, e.value = w.decide(&p.Frame)
	m.stats.Replaced++
	if e.op == wire.RCCmpSwap && e.prior != p.AtomicETH.Compare {
		m.stats.Failed++
	}
}

// sendAgain sends a retransmission in the same way as the first copy of the request. The request's
// map entry becomes open again, because the server will answer a second time. A retransmission for
// a part of a READ is dropped (hole 6), and so is one of a request whose map entry is gone (holes
// 14 and 41).
func (m *Machine) sendAgain(c *pipeline.Ctx, from *client, p *pipeline.Parsed) pipeline.Verdict {
	m.stats.Retransmitted++
	t := &from.sent[p.BTH.PSN%sentSize]
	var e *entry
	if t.via != nil && t.psn == p.BTH.PSN {
		e = t.via.find(t.at)
	}
	if e == nil || e.from != from {
		m.stats.Forgotten++
		return pipeline.Drop(ReasonForgotten)
	}
	if !t.via.isOpen(e) {
		t.via.again(e)
	}
	return m.send(c, t.via, e, p)
}

// send returns the verdict that sends a request as the switch has decided (e): on the connection of
// client via, with PSN e.at, and an atomic as a WRITE if e.sentAs is replaced.
func (m *Machine) send(c *pipeline.Ctx, via *client, e *entry, p *pipeline.Parsed) pipeline.Verdict {
	n := transform.Note{From: p.BTH.Opcode, Conn: via.flow.ID, PSN: p.BTH.PSN, NewPSN: e.at}
	if e.sentAs == replaced {
		m.replace(&p.Frame, e.value)
		n.Show, n.Value, n.Prior = transform.ShowValue|transform.ShowPrior, e.value, e.prior
	}
	var raw pipeline.RequestID
	if c.Observed() {
		raw = id(p)
	}
	if via == e.from && e.sentAs == asIs && e.at == p.BTH.PSN {
		// The Follower, which traces requests, is told that this request keeps its PSN: other
		// requests of the client on this connection have got other PSNs.
		if c.Observed() {
			c.Moved(raw, raw)
		}
		return pipeline.Forward()
	}
	if via == e.from {
		transform.Renumber(&p.Frame, e.at)
		n.Conn = 0
	} else {
		// The switch sends the request on the connection of another client. It does not set AckReq
		// in a WRITE that has none (hole 11).
		via.lent = true
		via.toServer().Apply(&p.Frame, e.at)
	}
	v := pipeline.Rewrite()
	if c.Observed() {
		c.Moved(raw, id(p))
		n.To = p.BTH.Opcode
		v = v.With(n.String())
	}
	return v
}

// id returns the name of a request for a pipeline.Follower.
func id(p *pipeline.Parsed) pipeline.RequestID {
	return pipeline.RequestID{Server: p.DstAddr(), QPN: p.BTH.DestQP, PSN: p.BTH.PSN}
}
