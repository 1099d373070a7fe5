package serialize

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// Response forwards a response on the client's connection to the client, with the PSN and MSN that
// the client expects.
func (m *Machine) Response(c *pipeline.Ctx, s conntrack.Seen, p *pipeline.Parsed) pipeline.Verdict {
	l, ok := s.Flow.Ext.(*sequencer)
	if !ok || l.phase == closed || l.generation != s.Flow.Generation || !p.BTH.Opcode.Is(wire.OpResponse) {
		return pipeline.Forward()
	}
	v := l.response(c, p)
	m.settle(c)
	return v
}

func (l *sequencer) response(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	s := p.AETH.Syndrome
	nak := p.BTH.Opcode == wire.RCAck && !s.IsAck()
	end := p.BTH.PSN.Next()
	if nak {
		end = p.BTH.PSN // a NAK acknowledges the requests before its PSN
	}
	if l.phase.isLoose() {
		if l.phase.hasForwarded() && p.BTH.Opcode.Is(wire.OpRead) && wire.Diff(end, l.conn.psns.own) > 0 {
			l.conn.psns.own = end // the response shows that the READ takes PSNs up to here
		}
		if l.phase.hasForwarded() && wire.Diff(end, l.conn.psns.own) <= 0 {
			l.ackOwn(c.Now, end)
		}
		if p.BTH.Opcode.Has(wire.HasAETH) {
			l.replies.msn, l.replies.hasMSN = p.AETH.MSN, true
		}
		return pipeline.Forward()
	}
	raw, rawMSN := p.BTH.PSN, p.AETH.MSN
	client, shift, ok := l.conn.clientPSN(raw)
	ok = ok && !l.conn.isFar(raw, l.conn.psns.own)
	if !ok && l.conn.msg == openRead && raw == l.conn.psns.own {
		client, shift, ok = l.conn.psns.client, l.conn.psns.shift(), true
		l.resolve(p)
	}
	if !ok && p.BTH.Opcode.Is(wire.OpRead|wire.OpAtomic) {
		if r := l.replies.window.onClient(raw); r != nil {
			client, shift, ok = r.psn.Add(int(wire.Diff(raw, r.own))), uint32(r.psn-r.own)&mask24, true
		}
	}
	if !ok {
		l.m.stats.Ghosts++
		return pipeline.Drop(ReasonGhost)
	}
	refused := nak && !s.IsRNR() && s != wire.NakPSNSequence && wire.Diff(raw, l.conn.acked) >= 0
	l.ackOwn(c.Now, end)
	redone := l.note(p, client)
	l.answered()
	if p.BTH.Opcode.Has(wire.HasAETH) {
		p.AETH.MSN = l.replies.raiseMSN(p.AETH.MSN + shift)
	}
	if refused {
		l.die(c.Now, client, s)
	}
	p.BTH.PSN = client
	if redone {
		l.replies.emitOwn(c, p, raw)
		l.endRedo(c, client)
		return pipeline.Consume()
	}
	switch {
	case l.waits.blocked:
		// The response must leave before the answers to held requests that this step may release.
		l.replies.emitOwn(c, p, raw)
		return pipeline.Consume()
	case raw == client && rawMSN == p.AETH.MSN:
		return pipeline.Forward()
	}
	l.m.stats.Rewritten++
	transform.Renumber(&p.Frame, client)
	return pipeline.Rewrite().With(noteResponse(c, p, raw))
}

// resolve finds out how many PSNs a READ of unknown span takes: p is the first packet of its
// response, or the NAK that refuses it.
func (l *sequencer) resolve(p *pipeline.Parsed) {
	r := l.replies.window.oldest()
	n := 0
	switch op := p.BTH.Opcode; {
	case op == wire.RCReadResponseFirst && len(p.Payload) > 0:
		n = (int(r.length) + len(p.Payload) - 1) / len(p.Payload)
	case op == wire.RCReadResponseOnly, op == wire.RCAck && p.AETH.Syndrome.IsNak() && p.AETH.Syndrome != wire.NakPSNSequence:
		n = 1
	default:
		return
	}
	l.conn.msg.on(evSpan)
	r.span = n
	l.assign(n, false)
	l.advance(n)
	l.m.kick = l.m.kick || l.waits.blocked
}

// note updates the record of the request that a response answers. redone is true if the packet is
// the last one of the response to a READ that was executed again.
func (l *sequencer) note(p *pipeline.Parsed, client wire.PSN) (redone bool) {
	op := p.BTH.Opcode
	if !op.Is(wire.OpRead | wire.OpAtomic) {
		return false
	}
	r := l.replies.window.find(client)
	switch {
	case r == nil || r.place != placeOwn:
		return false
	case r.state != inFlight:
		return r.state == redoing && client == r.psn.Add(r.span-1)
	case op == wire.RCAtomicAck && r.op.Is(wire.OpAtomic) && r.op != wire.RCAtomicWrite:
		r.prior = p.AtomicAck
	case op == wire.RCReadResponseOnly && (r.op == wire.RCAtomicWrite || r.op == wire.RCFlush):
	case op.Is(wire.OpRead) && r.op == wire.RCReadRequest && client == r.psn.Add(r.span-1):
		// The packet is the last one of the response, so the request has been answered. If an
		// earlier packet of the response was lost, the client asks for the rest again. If it was
		// reordered, it can still reach the client.
	case op.Is(wire.OpRead) && r.op == wire.RCReadRequest:
		r.got = max(r.got, int(wire.Diff(client, r.psn))+1)
		return false
	default:
		return false
	}
	l.replies.window.finish(r)
	l.m.kick = l.m.kick || l.waits.blocked
	return false
}
