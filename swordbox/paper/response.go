package paper

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rewrite"
)

// ack is what one client gets for an acknowledgement of the server.
type ack struct {
	to  *client
	psn wire.PSN
}

// Response brings what a server answers on a connection to the clients whose requests went there (paper, section 4.2).
func (m *Machine) Response(c *pipeline.Ctx, s conntrack.Seen, p *pipeline.Parsed) pipeline.Verdict {
	via := clientOf(s.Row)
	if via == nil {
		return pipeline.Forward()
	}
	at, syndrome := p.BTH.PSN, p.AETH.Syndrome
	switch op := p.BTH.Opcode; {
	case op == wire.RCAck && syndrome == wire.NakPSNSequence:
		m.cover(c, via, at.Add(-1))
		m.broadcast(c, via)
		return pipeline.Consume()
	case op == wire.RCAck && !syndrome.IsAck():
		m.cover(c, via, at.Add(-1))
		return m.blame(via, p)
	case op == wire.RCAck:
		m.cover(c, via, at)
		return pipeline.Consume()
	}
	// The answer of a READ or of an atomic acknowledges what was sent before it.
	e := via.covering(at)
	if e == nil {
		m.stats.Strays++
		return pipeline.Drop(ReasonForgotten)
	}
	m.cover(c, via, e.at.Add(-1))
	if e.op.Is(wire.OpAtomic) {
		e.learn(p.AtomicAck)
	}
	if p.BTH.Opcode != wire.RCReadResponseFirst && p.BTH.Opcode != wire.RCReadResponseMiddle {
		e.done()
	}
	return m.deliver(c, via, e, p)
}

// cover takes an acknowledgement apart: each atomic that was replaced gets an answer of its own, and each client with other
// requests one acknowledgement of the last of them. READs and atomics that passed through wait for their answers; that a
// client of theirs now hears of later requests first is not prevented (hole 10).
func (m *Machine) cover(c *pipeline.Ctx, via *client, at wire.PSN) {
	m.acks = m.acks[:0]
	for i := ringSize - 1; i >= 0; i-- {
		e := via.find(at.Add(-i))
		if e == nil || !e.open || e.what == asIs && (e.op == wire.RCReadRequest || e.op.Is(wire.OpAtomic)) {
			continue
		}
		e.done()
		if e.what == replaced {
			m.answer(c, e)
			continue
		}
		m.note(e)
	}
	if len(m.acks) > 1 {
		m.stats.AcksSplit++
	}
	for _, a := range m.acks {
		a.to.toClient().ACK(&m.tx, a.psn, a.to.msn(a.psn))
		m.emit(c, a.to, "acknowledgement taken apart")
	}
}

// note remembers the last request of a client that an acknowledgement covers.
func (m *Machine) note(e *entry) {
	for i := range m.acks {
		if a := &m.acks[i]; a.to == e.from {
			if wire.Diff(e.psn, a.psn) > 0 {
				a.psn = e.psn
			}
			return
		}
	}
	m.acks = append(m.acks, ack{e.from, e.psn})
}

// answer makes the answer of an atomic that was replaced.
func (m *Machine) answer(c *pipeline.Ctx, e *entry) {
	e.from.toClient().AtomicACK(&m.tx, e.psn, e.from.msn(e.psn), e.prior)
	m.emit(c, e.from, "ACK→ATOMIC_ACK")
}

// broadcast makes every client with open entries go back (hole 2): whom the server waits for is one of them, or dead
// (hole 1).
func (m *Machine) broadcast(c *pipeline.Ctx, via *client) {
	m.stats.Broadcast++
	for _, to := range via.server.clients {
		if waits := via.waits(to); !waits {
			continue
		}
		psn := to.oldest(via)
		to.toClient().NAK(&m.tx, psn, to.msn(psn.Add(-1)), wire.NakPSNSequence)
		m.stats.Naks++
		m.emit(c, to, "NAK broadcast")
	}
}

// waits reports whether a client has open entries on this connection.
func (c *client) waits(to *client) bool {
	for i := range c.ring {
		if e := &c.ring[i]; e.open && e.from == to {
			return true
		}
	}
	return false
}

// blame brings any other NAK to the client whose request it names. If the NAK is fatal, the server has closed the
// connection, and the others who use it are not told (hole 20); an RNR NAK holds back one of them, and the others go on
// sending (hole 21).
func (m *Machine) blame(via *client, p *pipeline.Parsed) pipeline.Verdict {
	e := via.covering(p.BTH.PSN)
	if e == nil || e.from.closed {
		m.stats.Strays++
		return pipeline.Drop(ReasonForgotten)
	}
	if p.AETH.Syndrome.IsNak() {
		m.stats.Fatal++
	}
	psn := e.psn.Add(int(wire.Diff(p.BTH.PSN, e.at)))
	rewrite.Response(&p.Frame, e.from.toClient(), psn, e.from.msn(psn.Add(-1)))
	return pipeline.Rewrite()
}

// deliver brings the answer of a READ or of an atomic to its client.
func (m *Machine) deliver(c *pipeline.Ctx, via *client, e *entry, p *pipeline.Parsed) pipeline.Verdict {
	if e.from.closed {
		m.stats.Strays++
		return pipeline.Drop(ReasonForgotten)
	}
	m.stats.Answers++
	psn := e.psn.Add(int(wire.Diff(p.BTH.PSN, e.at)))
	if via == e.from && psn == p.BTH.PSN && !via.lent {
		return pipeline.Forward()
	}
	n := rewrite.Note{From: p.BTH.Opcode, To: p.BTH.Opcode, Conn: via.row.ID, PSN: p.BTH.PSN, NewPSN: psn}
	rewrite.Response(&p.Frame, e.from.toClient(), psn, e.from.msn(psn))
	v := pipeline.Rewrite()
	if c.Observed() {
		v = v.With(n.String())
	}
	return v
}

// emit sends what was made for a client, if it is still there.
func (m *Machine) emit(c *pipeline.Ctx, to *client, why string) {
	if to.closed {
		return
	}
	note := ""
	if c.Observed() {
		n := rewrite.Note{
			From: m.tx.BTH.Opcode, To: m.tx.BTH.Opcode, Conn: to.row.ID, NewPSN: m.tx.BTH.PSN, Made: true,
			Show: rewrite.ShowMSN, MSN: m.tx.AETH.MSN, Prior: m.tx.AtomicAck, Why: why,
		}
		if m.tx.BTH.Opcode == wire.RCAtomicAck {
			n.Show |= rewrite.ShowPrior
		}
		note = n.String()
	}
	m.stats.Answers++
	c.Emit(&m.tx, note)
}
