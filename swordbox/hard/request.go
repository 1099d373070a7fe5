package hard

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/swordbox/words"
)

// Reasons of drops.
const (
	ReasonGap      pipeline.Reason = "psn gap"            // something before it is missing
	ReasonOld      pipeline.Reason = "psn too old"        // a duplicate of what is not remembered
	ReasonOther    pipeline.Reason = "other request"      // a duplicate that is not what came under its PSN before
	ReasonGhost    pipeline.Reason = "ghost response"     // an answer to what was not asked
	ReasonBusy     pipeline.Reason = "word busy"          // its sender will try again
	ReasonHeldFull pipeline.Reason = "too many held"      // its sender will try again
	ReasonStranger pipeline.Reason = "stranger"           // to a queue pair of the switch, from somebody else than its peer
	ReasonDead     pipeline.Reason = "connection is dead" // a fatal NAK was sent
)

// Request decides about a request to a memory server. The rule is found anew, for a held packet must look for it, too.
func (m *Machine) Request(c *pipeline.Ctx, s conntrack.Seen, _ *rules.Rule, p *pipeline.Parsed) pipeline.Verdict {
	l, ok := s.Row.Ext.(*lane)
	if !ok || l.closed || l.generation != s.Row.Generation {
		l = nil // one that is there goes on also without rules: its numbers must
		if srv := m.byAddr[s.Row.Responder]; srv != nil && srv.moves {
			l = m.newLane(c.Now, s.Row, srv)
		}
	}
	if l == nil {
		v := m.Bypass(c, p)
		if s.Class == conntrack.New && v.Action == pipeline.ActForward {
			s.Row.Advance(s.Span)
		}
		return v
	}
	if !p.BTH.Opcode.Is(wire.OpRequest) || p.BTH.Opcode.Service() != wire.ServiceRC {
		return pipeline.Forward()
	}
	if !c.Allowed(p.Ingress, p.Eth.Dst) {
		return pipeline.Drop(pipeline.ReasonPartition) // also what would go by another way
	}
	v := l.request(c, s, p)
	m.settle(c)
	return v
}

func (l *lane) request(c *pipeline.Ctx, s conntrack.Seen, p *pipeline.Parsed) pipeline.Verdict {
	if l.formers != nil && l.awaitsFormer() {
		return l.tooEarly()
	}
	if l.loose && !l.canStart(s, p.BTH.PSN) {
		return l.looseRequest(c, s, p)
	}
	if l.loose {
		l.start(c.Now, p.BTH.PSN, s.Alone)
	}
	switch d := wire.Diff(p.BTH.PSN, l.next); {
	case d == 0:
		return l.newRequest(c, s, p)
	case d < 0:
		return l.duplicate(c, p)
	default:
		return l.gap(c, p)
	}
}

// canStart reports whether a request is the one that the server expects, for sure, and the client can be answered: nothing
// with its PSN or a later one is on its way, and nothing before it was dropped.
func (l *lane) canStart(s conntrack.Seen, psn wire.PSN) bool {
	if s.Class != conntrack.New || s.Span == 0 || l.row.ReqQPN == 0 || !l.row.HasPath {
		return false
	}
	return s.Alone || l.whole && (!l.any || wire.Diff(psn, l.psns.own) >= 0)
}

// looseRequest lets a request pass while the expected PSN is not known.
func (l *lane) looseRequest(c *pipeline.Ctx, s conntrack.Seen, p *pipeline.Parsed) pipeline.Verdict {
	end := p.BTH.PSN.Add(max(1, s.Span))
	if va, n, _ := target(&p.Frame); l.s.watch && n > 0 && p.BTH.Opcode.Is(wire.OpWrite|wire.OpAtomic) {
		if p.BTH.Opcode.Is(wire.OpWrite) && l.isStrange() && !l.m.admits(c.Now, l.s, va, n) {
			l.whole = false
			return pipeline.Drop(ReasonBusy)
		}
		l.m.cover = l.m.words.Overlapping(l.m.cover[:0], l.s.index, va, n)
		if len(l.m.cover) > 0 || p.BTH.Opcode.Is(wire.OpAtomic) {
			if p.BTH.Opcode.Is(wire.OpAtomic) {
				l.m.words.Get(c.Now, words.Key{Server: l.s.index, VA: va})
			}
			if !l.ops.room() {
				l.ops.head++ // nobody tells its end; it counts until no NIC would send it again
			}
			d := l.m.words.OwnAll(c.Now, l.s.index, va, n)
			if d.Kind == words.Wait {
				l.m.stats.LooseDropped++
				l.whole = false // it is new to the server when it comes again, whatever has passed meanwhile
				return pipeline.Drop(ReasonBusy)
			}
			op := l.ops.add()
			op.end, op.all, op.decision, op.va, op.n = end, true, d, va, n
		}
	}
	if !l.any || wire.Diff(end, l.psns.own) > 0 {
		if !l.any {
			l.acked = p.BTH.PSN
		}
		if l.any && wire.Diff(p.BTH.PSN, l.psns.own) >= 0 || !l.any && l.whole {
			l.sends(p.BTH.PSN)
		}
		l.psns.own, l.any = end, true
	}
	l.lastLoose = c.Now
	if s.Class == conntrack.New {
		l.row.Advance(s.Span)
	}
	return pipeline.Forward()
}

// gap refuses a request that something is missing before, as a responder does (IBTA 9.7.5.2.8, hole 41).
func (l *lane) gap(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	l.m.stats.Gaps++
	if l.dead {
		return l.refuseAgain(c)
	}
	switch {
	case l.vague:
		l.tellLater()
	case !l.nakSent:
		l.nakSent = true
		l.sendSequenceNak(c)
	}
	return pipeline.Drop(ReasonGap)
}

// newRequest takes the request that is due.
func (l *lane) newRequest(c *pipeline.Ctx, s conntrack.Seen, p *pipeline.Parsed) pipeline.Verdict {
	l.nakSent = l.overflow
	switch {
	case l.dead:
		return l.refuseAgain(c)
	case l.vague && p.BTH.PSN == l.psns.client:
		l.m.rawPSN, l.m.rawAckReq = p.BTH.PSN, p.BTH.AckReq
		p.BTH.PSN = l.psns.own // the READ whose end is not known, once more
		return pipeline.Rewrite().With(l.noteOwn(c, p))
	case l.held.n > 0:
		return l.hold(c, p, s.Span)
	}
	l.m.inPlace, l.m.now, l.m.note = true, false, ""
	out := l.dispatch(c, &p.Frame, s.Span)
	l.m.inPlace = false
	switch out {
	case sentOwn:
		l.advance(s.Span)
		if l.same(p) {
			return pipeline.Forward()
		}
		l.m.stats.Rewritten++
		return pipeline.Rewrite().With(l.noteOwn(c, p))
	case sentShared:
		l.advance(s.Span)
		if l.m.now {
			return pipeline.Rewrite().With(l.m.note)
		}
		note := ""
		if c.Observed() && l.s.links[l.place].conn.Queued() > 0 {
			note = "waits for room on the shared connection"
		}
		return pipeline.Consume().With(note)
	case told:
		l.advance(s.Span)
		return pipeline.Consume()
	default:
		return l.hold(c, p, s.Span)
	}
}

// same reports whether a request that dispatch left to the own connection is as it came.
func (l *lane) same(p *pipeline.Parsed) bool {
	return p.BTH.PSN == l.m.rawPSN && p.BTH.AckReq == l.m.rawAckReq
}

// hold keeps a request until its place is free. It counts as received.
func (l *lane) hold(c *pipeline.Ctx, p *pipeline.Parsed, span int) pipeline.Verdict {
	m := l.m
	if p.BTH.Opcode.Is(wire.OpWrite | wire.OpAtomic) {
		l.hurry()
	}
	i := int32(-1)
	if l.held.n < m.cfg.HeldPerRow && span > 0 { // of a READ without known end nothing could be held behind
		i = m.held.add(p.Raw.Data, span, c.Now)
	}
	if i < 0 {
		// No NAK for what follows it: it would only come again too early. The client is told when there is room.
		m.stats.HeldFull++
		l.tellLater()
		return pipeline.Drop(ReasonHeldFull)
	}
	m.stats.Held++
	l.advance(span)
	l.held.push(&m.held, i)
	l.block()
	if l.held.n == 1 {
		l.schedule()
	}
	note := ""
	if c.Observed() {
		note = "held by the switch until what is before it has been answered"
	}
	return pipeline.Consume().With(note)
}

// block has settle look after the lane.
func (l *lane) block() {
	if !l.blocked {
		l.blocked = true
		l.m.blocked = append(l.m.blocked, l)
	}
}

// tellLater drops requests without a NAK until the lane is idle: they would only come again too early, and use up the
// retries of the client.
func (l *lane) tellLater() {
	l.nakSent, l.overflow = true, true
	l.block()
}

// release sends held packets on, as far as they may go now.
func (l *lane) release(c *pipeline.Ctx) {
	if l.held.n > 0 {
		l.releaseHeld(c)
	}
	if l.overflow && l.held.n == 0 && (l.idle() || l.inMsg) && l.m.held.inUse < l.m.cfg.Held {
		l.overflow = false
		if !l.dead {
			l.sendSequenceNak(c)
		}
	}
}

func (l *lane) releaseHeld(c *pipeline.Ctx) {
	m := l.m
	if l.awaits.word != nil && l.awaits.still(c.Now) {
		return // tick ends it
	}
	for l.held.n > 0 && !l.dead {
		l.awaits = waiting{}
		h := &m.held.slots[l.held.first]
		if wire.ParseFrame(h.data, &m.frame) != nil {
			panic("hard: a held packet cannot be parsed, but it was")
		}
		switch l.dispatch(c, &m.frame, h.span) {
		case sentOwn:
			note := ""
			if c.Observed() {
				note = "released by the switch"
			}
			c.Emit(&m.frame, note)
		case sentShared, told:
		default:
			l.schedule()
			return
		}
		m.stats.Released++
		l.held.pop(&m.held)
	}
	if l.dead {
		l.giveUpHeld()
	}
	l.schedule()
}

// duplicate answers a request that came before (IBTA 9.7.4.1, holes 13, 14).
func (l *lane) duplicate(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	m := l.m
	if l.dead && wire.Diff(p.BTH.PSN, l.deadPSN) >= 0 {
		return l.refuseAgain(c)
	}
	if l.isFar(p.BTH.PSN, l.next) {
		m.stats.TooOld++
		return pipeline.Drop(ReasonOld)
	}
	m.stats.Duplicates++
	m.rawPSN, m.rawAckReq = p.BTH.PSN, p.BTH.AckReq
	at, own := l.psns.find(p.BTH.PSN)
	r := l.window.find(p.BTH.PSN)
	if r != nil && !r.isSame(&p.Frame) {
		m.stats.Forged++
		return pipeline.Drop(ReasonOther)
	}
	switch at {
	case whereFuture: // it is held
		l.hurry()
		m.stats.DuplicatesIgnored++
		return pipeline.Consume()
	case whereOld:
		m.stats.TooOld++
		return pipeline.Drop(ReasonOld)
	case whereOwn:
		if r != nil && r.done && r.op.Is(wire.OpAtomic) {
			return l.answerAgain(c, r)
		}
		if r != nil && r.done {
			l.redo(c, r)
		}
		if !l.mayRepeat(c, own, &p.Frame) {
			return pipeline.Drop(ReasonBusy)
		}
		raw := p.BTH.PSN
		p.BTH.PSN = own
		if l.shouldAsk(p.BTH.Opcode) && !p.BTH.AckReq {
			p.BTH.AckReq = true
		} else if own == raw {
			return pipeline.Forward()
		}
		m.stats.Rewritten++
		return pipeline.Rewrite().With(l.noteOwn(c, p))
	case whereMoved:
	}
	switch {
	case l.isSuspect() && (r == nil || r.done): // what the switch remembers may not be the answer to this one
		l.die(c.Now, p.BTH.PSN, wire.NakRemoteOp)
		return l.refuseAgain(c)
	case r == nil && p.BTH.Opcode == wire.RCWriteOnly && p.BTH.AckReq:
		// What is not remembered has been executed, and a WRITE has no other outcome (IBTA C9-105).
		m.stats.AnsweredAgain++
		l.answer(c, &record{psn: p.BTH.PSN, op: p.BTH.Opcode})
		return pipeline.Consume()
	case r == nil:
		m.stats.TooOld++
		return pipeline.Drop(ReasonOld)
	case !r.done || r.redo:
		m.stats.DuplicatesIgnored++ // the switch asks again by itself
		return pipeline.Consume()
	case r.op.Is(wire.OpRead):
		return l.redoMoved(c, r, p)
	}
	return l.answerAgain(c, r)
}

// shouldAsk says that the own connection must acknowledge a packet, so that the switch knows when it is idle.
func (l *lane) shouldAsk(op wire.Opcode) bool {
	return op.Is(wire.OpLast|wire.OpOnly) && op.Is(wire.OpSend|wire.OpWrite)
}
