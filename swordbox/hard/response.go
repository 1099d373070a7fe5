package hard

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rewrite"
)

// Response brings a response of the own connection to the client, in the client's numbers.
func (m *Machine) Response(c *pipeline.Ctx, s conntrack.Seen, p *pipeline.Parsed) pipeline.Verdict {
	l, ok := s.Row.Ext.(*lane)
	if !ok || l.closed || l.generation != s.Row.Generation || !p.BTH.Opcode.Is(wire.OpResponse) {
		return pipeline.Forward()
	}
	v := l.response(c, p)
	m.settle(c)
	return v
}

func (l *lane) response(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	s := p.AETH.Syndrome
	nak := p.BTH.Opcode == wire.RCAck && !s.IsAck()
	end := p.BTH.PSN.Next()
	if nak {
		end = p.BTH.PSN // it acknowledges what is before it
	}
	if l.loose {
		if l.any && p.BTH.Opcode.Is(wire.OpRead) && wire.Diff(end, l.psns.own) > 0 {
			l.psns.own = end // of a READ whose number of PSNs was not known
		}
		if l.any && wire.Diff(end, l.psns.own) <= 0 {
			l.ackOwn(c.Now, end)
		}
		if p.BTH.Opcode.Has(wire.HasAETH) {
			l.msn, l.hasMSN = p.AETH.MSN, true
		}
		return pipeline.Forward()
	}
	raw, rawMSN := p.BTH.PSN, p.AETH.MSN
	client, shift, ok := l.psns.back(raw)
	ok = ok && !l.isFar(raw, l.psns.own)
	if !ok && l.vague && raw == l.psns.own {
		client, shift, ok = l.psns.client, l.psns.shift(), true
		l.resolve(p)
	}
	if !ok {
		l.m.stats.Ghosts++
		return pipeline.Drop(ReasonGhost)
	}
	refused := nak && !s.IsRNR() && s != wire.NakPSNSequence && wire.Diff(raw, l.acked) >= 0
	l.ackOwn(c.Now, end)
	redone := l.note(p, client)
	l.answered()
	if p.BTH.Opcode.Has(wire.HasAETH) {
		p.AETH.MSN = l.raiseMSN(p.AETH.MSN + shift)
	}
	if refused {
		l.die(c.Now, client, s)
	}
	p.BTH.PSN = client
	if redone {
		l.emitOwn(c, p, raw)
		l.endRedo(c, client)
		return pipeline.Consume()
	}
	switch {
	case l.blocked:
		l.emitOwn(c, p, raw) // before what the release of held packets may tell the client
		return pipeline.Consume()
	case raw == client && rawMSN == p.AETH.MSN:
		return pipeline.Forward()
	}
	l.m.stats.Rewritten++
	rewrite.Renumber(&p.Frame, client)
	return pipeline.Rewrite().With(l.noteResponse(c, p, raw))
}

// emitOwn sends a response of the own connection to the client, before whatever is emitted after it.
func (l *lane) emitOwn(c *pipeline.Ctx, p *pipeline.Parsed, raw wire.PSN) {
	l.m.stats.Rewritten++
	rewrite.Renumber(&p.Frame, p.BTH.PSN)
	c.Emit(&p.Frame, l.noteResponse(c, p, raw))
}

// raiseMSN returns the count of messages for an answer: it never falls, also not for answers to duplicates.
func (l *lane) raiseMSN(msn uint32) uint32 {
	msn &= mask24
	if !l.hasMSN || wire.Diff(wire.PSN(msn), wire.PSN(l.msn)) > 0 {
		l.msn, l.hasMSN = msn, true
	}
	return l.msn
}

// resolve finds the end of a READ whose number of PSNs was not known, from the first packet of its response or from its
// refusal.
func (l *lane) resolve(p *pipeline.Parsed) {
	r := l.window.oldest()
	n := 0
	switch op := p.BTH.Opcode; {
	case op == wire.RCReadResponseFirst && len(p.Payload) > 0:
		n = (int(r.length) + len(p.Payload) - 1) / len(p.Payload)
	case op == wire.RCReadResponseOnly, op == wire.RCAck && p.AETH.Syndrome.IsNak() && p.AETH.Syndrome != wire.NakPSNSequence:
		n = 1
	default:
		return
	}
	l.vague = false
	r.span = n
	l.psns.add(n, false)
	l.advance(n)
	l.m.kick = l.m.kick || l.blocked
}

// note records what a response answers. The result says that it is the last packet of a READ that was executed again.
func (l *lane) note(p *pipeline.Parsed, client wire.PSN) (redone bool) {
	op := p.BTH.Opcode
	if !op.Is(wire.OpRead | wire.OpAtomic) {
		return false
	}
	r := l.window.find(client)
	switch {
	case r == nil || r.moved:
		return false
	case r.done:
		return r.redo && client == r.psn.Add(r.span-1)
	case op == wire.RCAtomicAck && r.op.Is(wire.OpAtomic):
		r.prior = p.AtomicAck
	case op.Is(wire.OpRead) && r.op == wire.RCReadRequest && client == r.psn.Add(r.span-1):
		// If one before it got lost, the client will ask for the rest once more. It need not have: what came in another
		// order here may have been put in order on its way to the client.
	case op.Is(wire.OpRead) && r.op == wire.RCReadRequest:
		r.got = max(r.got, int(wire.Diff(client, r.psn))+1)
		return false
	default:
		return false
	}
	l.window.finish(r)
	l.m.kick = l.m.kick || l.blocked
	return false
}

// die notes that a request was refused for good: both queue pairs go to the error state.
func (l *lane) die(now clock.Time, psn wire.PSN, s wire.Syndrome) {
	if l.dead {
		return
	}
	l.dead, l.deadPSN, l.fatal = true, psn, s
	l.m.stats.Deaths++
	l.row.Pinned = false // both queue pairs are of no use any more: time may forget the row
	l.dropOps(now)
	l.giveUpHeld()
}
