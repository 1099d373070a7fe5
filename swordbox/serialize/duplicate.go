package serialize

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// duplicate handles a request that has arrived before. The switch answers it as a responder does
// (IBTA 9.7.4.1, holes 13, 14).
type duplicate struct {
	*sequencer
	c *pipeline.Ctx
	p *pipeline.Parsed
	r *record // the record of the first request; nil means that the window has none
}

func (d *duplicate) handle() pipeline.Verdict {
	m, p := d.m, d.p
	if d.phase == refused && wire.Diff(p.BTH.PSN, d.deadPSN) >= 0 {
		return d.refuseAgain(d.c, p.BTH.PSN)
	}
	at, own := d.find(p.BTH.PSN)
	d.r = d.window.find(p.BTH.PSN)
	if d.r == nil && d.isFar(p.BTH.PSN, d.next) {
		return d.executed()
	}
	m.stats.Duplicates++
	switch {
	case d.r != nil && !d.r.isSame(&p.Frame):
		m.stats.Forged++
		return pipeline.Drop(ReasonOther)
	case d.r != nil && d.r.place == placeOwn:
		at, own = whereOwn, d.r.own.Add(int(wire.Diff(p.BTH.PSN, d.r.psn)))
	case d.r != nil:
		at = whereMoved
	}
	switch at {
	case whereFuture: // the request is held
		if d.hurry(&m.held) {
			m.kick = true
		}
		if d.held.n > 0 && p.BTH.PSN == d.psns.client {
			d.heard.transmitted(d.c.Now, p.BTH.PSN)
			d.schedule()
		}
		m.stats.DuplicatesIgnored++
		return pipeline.Consume()
	case whereOwn:
		return d.toOwn(own)
	case whereOld:
		return d.executed()
	case whereMoved:
	}
	return d.ofMoved()
}

// toOwn forwards the duplicate on the client's connection, or answers it if the server need not
// execute it again.
func (d *duplicate) toOwn(own wire.PSN) pipeline.Verdict {
	p, r := d.p, d.r
	if r != nil && r.state != inFlight && r.op.Is(wire.OpAtomic|wire.OpFlush) {
		return d.answerAgain()
	}
	if r != nil && r.state != inFlight {
		d.redo(evRedo)
	}
	if !d.mayRepeat(own) {
		return pipeline.Drop(ReasonBusy)
	}
	raw, rawAckReq := p.BTH.PSN, p.BTH.AckReq
	p.BTH.PSN = own
	if wantsAck(p.BTH.Opcode) && !p.BTH.AckReq {
		p.BTH.AckReq = true
	} else if own == raw {
		return pipeline.Forward()
	}
	d.m.stats.Rewritten++
	return pipeline.Rewrite().With(noteOwn(d.c, p, raw, rawAckReq))
}

// ofMoved handles a duplicate of a moved request: it answers from the record, or makes the server
// execute a READ again.
func (d *duplicate) ofMoved() pipeline.Verdict {
	r := d.r
	switch {
	case d.isSuspect() && (r == nil || r.state != inFlight):
		return d.refuseSuspect()
	case r == nil:
		return d.executed()
	case r.state == inFlight || r.state.isRedo():
		d.m.stats.DuplicatesIgnored++ // the switch's requester retransmits it
		return pipeline.Consume()
	case r.op.Is(wire.OpRead):
		return d.redoMoved()
	}
	return d.answerAgain()
}

// refuseSuspect refuses the flow with a fatal NAK. It is called if the server may have begun a new
// incarnation: then the record of the request may belong to an earlier connection.
func (d *duplicate) refuseSuspect() pipeline.Verdict {
	end, psn := d.incomplete(), d.p.BTH.PSN
	switch {
	case d.phase != refused:
		d.die(d.c.Now, psn, wire.NakRemoteOp)
		d.deadEnd = end
	case wire.Diff(psn, d.deadPSN) < 0:
		d.deadPSN = psn // the client also lacks the answer to this earlier request
	}
	return d.refuseAgain(d.c, psn)
}

// executed answers a duplicate of which the switch knows only that the server has executed it. A
// duplicate SEND or WRITE is answered by an ACK, because its outcome is always the same (IBTA
// C9-105). The ACK has the PSN of the newest request that the server has executed, as a responder's
// ACK has. The client of this flow has sent that newest request, so it accepts the ACK. If the
// duplicate is in fact the first request of another connection with the same QPNs and PSNs, its
// sender ignores an ACK of a PSN that it has not used. executed sends no ACK if a READ or an atomic
// follows the duplicate: an ACK does not complete these. The client sends the READ or atomic again,
// too, and the response to it also acknowledges the duplicate.
func (d *duplicate) executed() pipeline.Verdict {
	m, psn := d.m, d.p.BTH.PSN
	end := d.incomplete()
	switch {
	case !d.p.BTH.Opcode.Is(wire.OpSend|wire.OpWrite) || wire.Diff(psn, end) >= 0:
		m.stats.TooOld++
		return pipeline.Drop(ReasonOld)
	case d.isSuspect():
		return d.refuseSuspect()
	case d.window.hasResult(psn, end) || !d.p.BTH.AckReq:
		m.stats.DuplicatesIgnored++
		return pipeline.Consume()
	case d.window.waitsForRedo(psn):
		d.late, d.isLate = end.Add(-1), true
		return pipeline.Consume()
	}
	m.stats.AnsweredAgain++
	d.answer(d.c, &record{psn: end.Add(-1), asked: asked{op: wire.RCWriteOnly}})
	return pipeline.Consume()
}

// answerAgain answers the duplicate. If an earlier READ is being executed again, the answer waits:
// the client must get the response to the READ first, or it takes the READ as lost (IBTA 9.7.6.1).
func (d *duplicate) answerAgain() pipeline.Verdict {
	d.m.stats.AnsweredAgain++
	switch {
	case !d.window.waitsForRedo(d.r.psn):
		d.answer(d.c, d.r)
	case d.r.state == owed:
		// The client sends the request for the third time: it no longer waits for the earlier READ.
		d.endRedos(d.c, d.r.psn)
	default:
		d.window.follow(d.r, evOwe)
	}
	return pipeline.Consume()
}

// redo counts that a completed READ is executed again, and applies event e to its record.
func (d *duplicate) redo(e recordEvent) {
	d.m.stats.Redone++
	first := d.window.redos == 0
	if d.window.follow(d.r, e); first && d.window.redos > 0 {
		d.redoAt = d.c.Now.Add(d.m.cfg.RedoTime)
		d.schedule()
	}
}

// redoMoved makes the server execute a READ again, as a new request on the shared connection. The
// READ may then return a newer value, which is allowed (IBTA 9.7.4.1).
func (d *duplicate) redoMoved() pipeline.Verdict {
	p, r := d.p, d.r
	conn := d.s.linkUp(int(r.place)).conn
	if p.RETH.VA != r.va || p.RETH.RKey != r.rkey || p.RETH.Length != r.length {
		d.m.stats.Forged++
		return pipeline.Drop(ReasonOther)
	}
	if r.state == done && !conn.Submit(d.c, &p.Frame, d.tag(r.psn)) {
		return pipeline.Drop(ReasonHeldFull)
	}
	d.redo(evRedoMoved)
	return pipeline.Consume()
}

// mayRepeat reports whether the switch may forward a duplicate on the client's connection now. If
// it is possible that the server has not executed the request yet, each word that the request
// touches must wait for the request. A word may have stopped waiting, because the client's NIC
// retries for longer than atomiccache.Config.Budget, or it may have entered the table after the
// request. In these cases mayRepeat announces the request to the words again; false means that a
// word does not allow the request now. If the server may have begun a new incarnation, mayRepeat
// assumes that the server has not executed the request.
func (d *duplicate) mayRepeat(own wire.PSN) bool {
	f := &d.p.Frame
	if !d.s.watch || !f.BTH.Opcode.Is(wire.OpWrite|wire.OpAtomic) || wire.Diff(own, d.acked) < 0 && !d.isSuspect() {
		return true
	}
	x := d.extentOf(f, own)
	if x.n == 0 || d.isCounted(d.c.Now, &x) || d.announce(d.c.Now, &x) {
		return true
	}
	d.m.stats.RepeatsDropped++
	return false
}
