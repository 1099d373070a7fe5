package serialize

import (
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Reasons why the machine drops a packet.
const (
	ReasonGap pipeline.Reason = "psn gap"     // a request before it is missing
	ReasonOld pipeline.Reason = "psn too old" // a duplicate whose record has left the window
	// a duplicate that differs from the first request with its PSN
	ReasonOther pipeline.Reason = "other request"
	ReasonGhost pipeline.Reason = "ghost response" // a response to a request that is not in flight
	// A word allows no other request at this time, older requests must end first (former.go), or
	// the connection may be forged (admit.go). The sender retransmits the request.
	ReasonBusy pipeline.Reason = "word busy"
	// no room to hold the request; the sender retransmits it
	ReasonHeldFull pipeline.Reason = "too many held"
	// the packet is addressed to a queue pair of the switch, but not sent by that queue pair's peer
	ReasonStranger pipeline.Reason = "stranger"
	ReasonDead     pipeline.Reason = "connection is dead" // a fatal NAK was sent
)

// Request decides what the switch does with a request to a memory server. dispatch looks up the
// rule itself, because held requests need the rule when they are released.
func (m *Machine) Request(c *pipeline.Ctx, s conntrack.Seen, _ *rules.Rule, p *pipeline.Parsed) pipeline.Verdict {
	l, ok := s.Flow.Ext.(*sequencer)
	if !ok || l.phase == closed || l.generation != s.Flow.Generation {
		l = nil // a sequencer is made only under rules; one that exists is used without rules, too, because it translates PSNs
		if srv := m.byAddr[s.Flow.Responder]; srv != nil && srv.moves {
			l = m.newSequencer(c.Now, s.Flow, srv)
		}
	}
	if l == nil {
		v := m.Bypass(c, s.Flow, p)
		if s.Class == conntrack.New && v.Action == pipeline.ActForward {
			s.Flow.Advance(s.Span)
		}
		return v
	}
	if !p.BTH.Opcode.Is(wire.OpRequest) || p.BTH.Opcode.Service() != wire.ServiceRC {
		return pipeline.Forward()
	}
	if !c.Allowed(p.Ingress, p.Eth.Dst) {
		// A partition stops the request even if it would move to a shared connection.
		return pipeline.Drop(pipeline.ReasonPartition)
	}
	v := l.request(c, s, p)
	m.settle(c)
	return v
}

func (l *sequencer) request(c *pipeline.Ctx, s conntrack.Seen, p *pipeline.Parsed) pipeline.Verdict {
	if l.formers.pending(l.s) {
		l.m.stats.TooEarly++
		l.phase.on(evDropped) // the retransmission will be new to the server; see looseRequest
		return pipeline.Drop(ReasonBusy)
	}
	if l.phase.isLoose() && !l.canStart(s, p.BTH.PSN) {
		return l.looseRequest(c, s, p)
	}
	if l.phase.isLoose() {
		l.start(c.Now, p.BTH.PSN, s.Alone)
	}
	l.waits.heard.at = c.Now
	switch ahead := wire.Diff(p.BTH.PSN, l.next); {
	case ahead == 0:
		return l.newRequest(c, s, p)
	case ahead < 0:
		d := duplicate{l: l, c: c, p: p}
		return d.handle()
	default:
		return l.gap(c, p)
	}
}

// canStart reports whether a request is certainly the one that the server expects, so that the
// sequencer can leave the loose phases (phase.isLoose): no request with its PSN or a later one is
// in flight, and none before it was dropped. The switch must also know the path for answers to the
// client.
func (l *sequencer) canStart(s conntrack.Seen, psn wire.PSN) bool {
	if s.Class != conntrack.New || s.Span == 0 || l.flow.ReqQPN == 0 || !l.flow.HasPath {
		return false
	}
	return s.Alone || l.phase.isWhole() && (!l.phase.hasForwarded() || wire.Diff(psn, l.conn.psns.own) >= 0)
}

// looseRequest forwards a request while the expected PSN is not known.
func (l *sequencer) looseRequest(c *pipeline.Ctx, s conntrack.Seen, p *pipeline.Parsed) pipeline.Verdict {
	end := p.BTH.PSN.Add(max(1, s.Span))
	if l.s.watch && p.BTH.Opcode.Is(wire.OpWrite|wire.OpAtomic) && !l.looseWrite(c.Now, &p.Frame) {
		// The server may not have received this request yet. Then it takes the retransmission as a
		// new request, even if the switch has forwarded later requests in the meantime.
		l.phase.on(evDropped)
		return pipeline.Drop(ReasonBusy)
	}
	if !l.phase.hasForwarded() || wire.Diff(end, l.conn.psns.own) > 0 {
		if !l.phase.hasForwarded() {
			l.conn.acked = p.BTH.PSN
		}
		if l.phase.hasForwarded() && wire.Diff(p.BTH.PSN, l.conn.psns.own) >= 0 || l.phase == untouched {
			l.conn.sends(p.BTH.PSN)
		}
		l.conn.psns.own = end
		l.phase.on(evForwarded)
	}
	l.conn.lastLoose = c.Now
	if s.Class == conntrack.New {
		l.flow.Advance(s.Span)
	}
	return pipeline.Forward()
}

// looseWrite makes every word that a WRITE or an atomic touches wait until the server has
// acknowledged the request, or the request can no longer reach the server. It returns false if the
// switch cannot forward the request now. A retransmission makes the words wait once more, because
// the switch cannot tell that it is one.
func (l *sequencer) looseWrite(now clock.Time, f *wire.Frame) bool {
	x := l.conn.extentOf(f, f.BTH.PSN)
	isAtomic := f.BTH.Opcode.Is(wire.OpAtomic)
	switch {
	case x.n == 0:
		return true
	case !isAtomic && l.replies.isUnproven() && !l.m.admits(now, l.s, x.va, x.n):
		return false
	case isAtomic:
		l.m.words.Get(now, atomiccache.Key{Server: l.s.index, VA: x.va})
	}
	l.m.step.cover = l.m.words.Overlapping(l.m.step.cover[:0], l.s.index, x.va, x.n)
	ok := true
	switch {
	case len(l.m.step.cover) == 0 && !isAtomic:
		if x.isLong() {
			l.conn.keep(now, &x)
		}
	case f.BTH.Opcode.Is(wire.OpMiddle | wire.OpLast):
		ok = l.conn.announcePart(now, &x)
	default:
		ok = l.conn.announce(now, &x)
	}
	if !ok {
		l.m.stats.LooseDropped++
	}
	return ok
}

// gap drops a request because an earlier one is missing, as a responder does (IBTA 9.7.5.2.8, hole
// 41).
func (l *sequencer) gap(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	l.m.stats.Gaps++
	if l.phase == refused {
		return l.replies.refuseAgain(c, p.BTH.PSN)
	}
	switch {
	case l.conn.msg == openRead:
		l.tellLater()
	case l.naks == inOrder:
		l.naks.on(evNak)
		l.sendSequenceNak(c)
	}
	return pipeline.Drop(ReasonGap)
}

// newRequest handles the request whose PSN is the next expected one.
func (l *sequencer) newRequest(c *pipeline.Ctx, s conntrack.Seen, p *pipeline.Parsed) pipeline.Verdict {
	l.naks.on(evInOrder)
	switch {
	case l.phase == refused:
		return l.replies.refuseAgain(c, p.BTH.PSN)
	case l.conn.msg == openRead && p.BTH.PSN == l.conn.psns.client:
		raw := p.BTH.PSN
		p.BTH.PSN = l.conn.psns.own // a retransmission of the READ whose number of PSNs is not known
		return pipeline.Rewrite().With(noteOwn(c, p, raw, p.BTH.AckReq))
	case l.waits.held.n > 0:
		return l.hold(c, p, s.Span)
	}
	l.m.step.note = ""
	raw, rawAckReq := p.BTH.PSN, p.BTH.AckReq
	g := placing{l: l, c: c, f: &p.Frame, span: s.Span, arrived: true}
	switch g.dispatch() {
	case sentOwn:
		l.advance(s.Span)
		if p.BTH.PSN == raw && p.BTH.AckReq == rawAckReq {
			return pipeline.Forward()
		}
		l.m.stats.Rewritten++
		return pipeline.Rewrite().With(noteOwn(c, p, raw, rawAckReq))
	case sentShared:
		l.advance(s.Span)
		if g.now {
			return pipeline.Rewrite().With(l.m.step.note)
		}
		note := ""
		if c.Observed() && l.s.links[l.place].conn.Requests.Queued() > 0 {
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

// hold keeps a request in the pool until its place is free. The switch then expects the next PSN
// from the client, as if the server had received the request. If the pool has no room, hold drops
// the request.
func (l *sequencer) hold(c *pipeline.Ctx, p *pipeline.Parsed, span int) pipeline.Verdict {
	m := l.m
	if p.BTH.Opcode.Is(wire.OpWrite | wire.OpAtomic) {
		if l.waits.hurry(&m.held) {
			m.kick = true
		}
	}
	i := int32(-1)
	// A READ whose number of PSNs (span) is not known cannot be held, because the switch would not
	// know the PSN of the next request.
	if l.waits.held.n < m.cfg.HeldPerFlow && span > 0 {
		i = m.keep(c, l.flow, p.Bytes(), span)
	}
	if i < 0 {
		// The client gets no NAK yet, because it would retransmit before there is room. The switch
		// sends the NAK when there is room.
		m.stats.HeldFull++
		l.tellLater()
		return pipeline.Drop(ReasonHeldFull)
	}
	m.stats.Held++
	l.advance(span)
	l.waits.held.push(&m.held, i)
	l.m.blocked.add(l)
	if l.waits.held.n == 1 {
		l.waits.heard.transmitted(c.Now, p.BTH.PSN)
		l.schedule()
	}
	note := ""
	if c.Observed() {
		note = "held by the switch until the requests before it have been answered"
	}
	return pipeline.Consume().With(note)
}

// tellLater is called when a request was dropped. It makes the method release send the sequence NAK
// later: when there is room, and the flow is idle or within a message. With an earlier NAK the
// client would retransmit too early and use up its retries.
func (l *sequencer) tellLater() {
	l.naks.on(evNoRoom)
	l.m.blocked.add(l)
}

// release sends the held requests, the oldest first, until one must still wait or the step may send
// no more of them (mayRelease). If none is left, release sends the sequence NAK if it is owed.
func (l *sequencer) release(c *pipeline.Ctx) {
	if !mayRelease(c) {
		l.m.kick = true
		return
	}
	if l.waits.held.n > 0 {
		l.releaseHeld(c)
	}
	if l.naks == nakOwed && l.waits.held.n == 0 && (l.idle() || l.conn.msg == inMessage) {
		if !l.m.held.room(l.flow.Port) {
			l.m.held.wanted = true
			return
		}
		l.naks.on(evRoom)
		if l.phase != refused {
			l.sendSequenceNak(c)
		}
	}
}

func (l *sequencer) releaseHeld(c *pipeline.Ctx) {
	m := l.m
	if l.dropStale(c.Now) {
		return
	}
	if l.waits.awaits.word != nil && l.waits.awaits.stillFails(c.Now) {
		return // tick ends this wait when its time is over
	}
	for l.waits.held.n > 0 {
		l.waits.awaits = waiting{}
		h := &m.held.slots[l.waits.held.first]
		if wire.ParseFrame(h.data, &m.step.frame) != nil {
			panic("serialize: a held packet cannot be parsed, but it was")
		}
		raw := m.step.frame.BTH.PSN
		g := placing{l: l, c: c, f: &m.step.frame, span: h.span}
		switch g.dispatch() {
		case sentOwn:
			note := ""
			if c.Observed() {
				movedOwn(c, &m.step.frame, raw)
				note = "released by the switch"
			}
			c.Emit(&m.step.frame, note)
		case sentShared, told:
		default:
			l.schedule()
			return
		}
		m.stats.Released++
		m.popHeld(&l.waits.held)
		if !mayRelease(c) {
			m.kick = true
			break
		}
	}
	l.schedule()
}

// sendSequenceNak makes the client retransmit all unanswered requests. A NAK acknowledges the
// requests before its PSN. So it cannot name the missing request while older ones are in flight
// (hole 43). It names the oldest unanswered request. The client then retransmits the requests in
// flight, too, and the switch takes those for duplicates.
func (l *sequencer) sendSequenceNak(c *pipeline.Ctx) {
	l.m.stats.SequenceNaks++
	l.replies.back().NAK(&l.m.step.tx, l.incomplete(), l.replies.msn, wire.NakPSNSequence)
	c.Emit(&l.m.step.tx, "a request is missing, or there was no room to hold it")
}
