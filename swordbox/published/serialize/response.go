package serialize

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// ack is an acknowledgement that the switch sends to one client because of an acknowledgement of
// the server.
type ack struct {
	to  *client
	psn wire.PSN
}

// Response changes a response on a connection into responses to the clients whose requests were
// sent on this connection (paper, section 4.2).
func (m *Machine) Response(c *pipeline.Ctx, s conntrack.Seen, p *pipeline.Parsed) pipeline.Verdict {
	via := newestOf(s.Flow)
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
		before := m.stats.AckEntries
		m.cover(c, via, at)
		m.stats.Acks++
		m.stats.AckEntriesMost = max(m.stats.AckEntriesMost, m.stats.AckEntries-before)
		return pipeline.Consume()
	}
	// The response to a READ or an atomic acknowledges all requests before it.
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
		via.done(e)
	}
	return m.deliver(c, via, e, p)
}

// cover splits an acknowledgement of all requests up to PSN `at`. The client of each replaced
// atomic gets an answer to it, and each client with other requests gets one acknowledgement of the
// last of them. READs and atomics that were not replaced wait for their responses; their clients
// may get the answers to later requests first (hole 10).
func (m *Machine) cover(c *pipeline.Ctx, via *client, at wire.PSN) {
	m.acks = m.acks[:0]
	oldest := int(at.Next() % ringSize)
	m.coverPart(c, via, at, oldest, ringSize)
	m.coverPart(c, via, at, 0, oldest)
	if len(m.acks) > 1 {
		m.stats.AcksSplit++
	}
	for _, a := range m.acks {
		a.to.toClient().ACK(&m.tx, a.psn, a.to.msn(a.psn))
		m.emit(c, a.to, "acknowledgement split")
	}
}

// coverPart does the first part of cover for the requests at the places first to end-1 of the ring:
// it answers replaced atomics, and notes in m.acks which clients get an acknowledgement.
func (m *Machine) coverPart(c *pipeline.Ctx, via *client, at wire.PSN, first, end int) {
	for i := via.opened.next(first); i < end; i = via.opened.next(i + 1) {
		e := &via.ring[i]
		behind := wire.Diff(at, e.at)
		if behind < 0 || behind >= ringSize || e.sentAs == asIs && e.op.Is(wire.OpAnswered) {
			continue
		}
		m.stats.AckEntries++
		via.done(e)
		if e.sentAs == replaced {
			m.answer(c, e)
		} else {
			m.note(e)
		}
	}
}

// note records in m.acks that the client of request e gets an acknowledgement of e. m.acks has one
// entry for each client, with the newest request: its acknowledgement covers the older ones.
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

// answer sends the client the answer to a replaced atomic.
func (m *Machine) answer(c *pipeline.Ctx, e *entry) {
	e.from.toClient().AtomicACK(&m.tx, e.psn, e.from.msn(e.psn), e.prior)
	m.emit(c, e.from, "ACK→ATOMIC_ACK")
}

// broadcast sends a sequence NAK to every client with open entries on a connection, so that each
// retransmits (hole 2). The server waits for a request of one of these clients, or of a dead client
// (hole 1).
func (m *Machine) broadcast(c *pipeline.Ctx, via *client) {
	m.stats.Broadcast++
	for _, to := range via.server.clients {
		psn, waits := to.oldest(via)
		if !waits {
			continue
		}
		to.toClient().NAK(&m.tx, psn, to.msn(psn.Add(-1)), wire.NakPSNSequence)
		m.stats.Naks++
		m.emit(c, to, "NAK broadcast")
	}
}

// blame forwards a NAK that is not a sequence NAK to the client whose request it names. If the NAK
// is fatal, the server has ended the connection, but the other clients that use the connection get
// no NAK (hole 20). After an RNR NAK one client waits, and the others continue to send (hole 21).
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
	transform.Response(&p.Frame, e.from.toClient(), psn, e.from.msn(psn.Add(-1)))
	return pipeline.Rewrite()
}

// deliver forwards the response to a READ or an atomic to the client of the request.
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
	n := transform.Note{From: p.BTH.Opcode, To: p.BTH.Opcode, Conn: via.flow.ID, PSN: p.BTH.PSN, NewPSN: psn}
	transform.Response(&p.Frame, e.from.toClient(), psn, e.from.msn(psn))
	v := pipeline.Rewrite()
	if c.Observed() {
		v = v.With(n.String())
	}
	return v
}

// emit sends m.tx to a client, unless its flow has ended.
func (m *Machine) emit(c *pipeline.Ctx, to *client, why string) {
	if to.closed {
		return
	}
	note := ""
	if c.Observed() {
		n := transform.Note{
			From: m.tx.BTH.Opcode, To: m.tx.BTH.Opcode, Conn: to.flow.ID, NewPSN: m.tx.BTH.PSN, Made: true,
			Show: transform.ShowMSN, MSN: m.tx.AETH.MSN, Prior: m.tx.AtomicAck, Why: why,
		}
		if m.tx.BTH.Opcode == wire.RCAtomicAck {
			n.Show |= transform.ShowPrior
		}
		note = n.String()
	}
	m.stats.Answers++
	c.Emit(&m.tx, note)
}
