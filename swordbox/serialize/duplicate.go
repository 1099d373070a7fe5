package serialize

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// duplicate handles a request that has arrived before. The switch answers it as a responder does
// (IBTA 9.7.4.1, holes 13, 14).
type duplicate struct {
	l *sequencer
	c *pipeline.Ctx
	p *pipeline.Parsed
	r *record // the record of the first request; nil means that the window has none
}

func (d *duplicate) handle() pipeline.Verdict {
	m, p := d.l.m, d.p
	if d.l.phase == refused && wire.Diff(p.BTH.PSN, d.l.replies.deadPSN) >= 0 {
		return d.l.replies.refuseAgain(d.c, p.BTH.PSN)
	}
	at, own := d.l.conn.find(p.BTH.PSN)
	d.r = d.l.replies.window.find(p.BTH.PSN)
	if d.r == nil && d.l.conn.isFar(p.BTH.PSN, d.l.next) {
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
		if d.l.waits.hurry(&m.held) {
			m.kick = true
		}
		if d.l.waits.held.n > 0 && p.BTH.PSN == d.l.conn.psns.client {
			d.l.waits.heard.transmitted(d.c.Now, p.BTH.PSN)
			d.l.schedule()
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
	d.l.m.stats.Rewritten++
	return pipeline.Rewrite().With(noteOwn(d.c, p, raw, rawAckReq))
}

// ofMoved handles a duplicate of a moved request: it answers from the record, or makes the server
// execute a READ again.
func (d *duplicate) ofMoved() pipeline.Verdict {
	r := d.r
	switch {
	case d.l.conn.isSuspect() && (r == nil || r.state != inFlight):
		return d.refuseSuspect()
	case r == nil:
		return d.executed()
	case r.state == inFlight || r.state.isRedo():
		d.l.m.stats.DuplicatesIgnored++ // the switch's requester retransmits it
		return pipeline.Consume()
	case r.op.Is(wire.OpRead):
		return d.redoMoved()
	}
	return d.answerAgain()
}

// refuseSuspect refuses the flow with a fatal NAK. It is called if the server may have begun a new
// incarnation: then the record of the request may belong to an earlier connection.
func (d *duplicate) refuseSuspect() pipeline.Verdict {
	end, psn := d.l.incomplete(), d.p.BTH.PSN
	switch {
	case d.l.phase != refused:
		d.l.die(d.c.Now, psn, wire.NakRemoteOp)
		d.l.replies.deadEnd = end
	case wire.Diff(psn, d.l.replies.deadPSN) < 0:
		d.l.replies.deadPSN = psn // the client also lacks the answer to this earlier request
	}
	return d.l.replies.refuseAgain(d.c, psn)
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
	m, psn := d.l.m, d.p.BTH.PSN
	end := d.l.incomplete()
	switch {
	case !d.p.BTH.Opcode.Is(wire.OpSend|wire.OpWrite) || wire.Diff(psn, end) >= 0:
		m.stats.TooOld++
		return pipeline.Drop(ReasonOld)
	case d.l.conn.isSuspect():
		return d.refuseSuspect()
	case d.l.replies.window.hasResult(psn, end) || !d.p.BTH.AckReq:
		m.stats.DuplicatesIgnored++
		return pipeline.Consume()
	case d.l.replies.window.waitsForRedo(psn):
		d.l.replies.late, d.l.replies.isLate = end.Add(-1), true
		return pipeline.Consume()
	}
	m.stats.AnsweredAgain++
	d.l.replies.answer(d.c, &record{psn: end.Add(-1), asked: asked{op: wire.RCWriteOnly}})
	return pipeline.Consume()
}

// answerAgain answers the duplicate. If an earlier READ is being executed again, the answer waits:
// the client must get the response to the READ first, or it takes the READ as lost (IBTA 9.7.6.1).
func (d *duplicate) answerAgain() pipeline.Verdict {
	d.l.m.stats.AnsweredAgain++
	switch {
	case !d.l.replies.window.waitsForRedo(d.r.psn):
		d.l.replies.answer(d.c, d.r)
	case d.r.state == owed:
		// The client sends the request for the third time: it no longer waits for the earlier READ.
		d.l.replies.endRedos(d.c, d.r.psn)
	default:
		d.l.replies.window.follow(d.r, evOwe)
	}
	return pipeline.Consume()
}

// redo counts that a completed READ is executed again, and applies event e to its record.
func (d *duplicate) redo(e recordEvent) {
	d.l.m.stats.Redone++
	first := d.l.replies.window.redos == 0
	if d.l.replies.window.follow(d.r, e); first && d.l.replies.window.redos > 0 {
		d.l.replies.redoAt = d.c.Now.Add(d.l.m.cfg.RedoTime)
		d.l.schedule()
	}
}

// redoMoved makes the server execute a READ again, as a new request on the shared connection. The
// READ may then return a newer value, which is allowed (IBTA 9.7.4.1).
func (d *duplicate) redoMoved() pipeline.Verdict {
	p, r := d.p, d.r
	conn := d.l.s.linkUp(int(r.place)).conn
	if p.RETH.VA != r.va || p.RETH.RKey != r.rkey || p.RETH.Length != r.length {
		d.l.m.stats.Forged++
		return pipeline.Drop(ReasonOther)
	}
	if r.state == done && !conn.Submit(d.c, &p.Frame, d.l.tag(r.psn)) {
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
	if !d.l.s.watch || !f.BTH.Opcode.Is(wire.OpWrite|wire.OpAtomic) || wire.Diff(own, d.l.conn.acked) < 0 && !d.l.conn.isSuspect() {
		return true
	}
	x := d.l.conn.extentOf(f, own)
	if x.n == 0 || d.l.conn.isCounted(d.c.Now, &x) || d.l.conn.announce(d.c.Now, &x) {
		return true
	}
	d.l.m.stats.RepeatsDropped++
	return false
}
