package hard

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// sendSequenceNak asks the client for everything that has not been answered. A NAK acknowledges what is before its PSN,
// so it cannot name the missing packet while older ones are under way (hole 43); what comes again is a duplicate.
func (l *lane) sendSequenceNak(c *pipeline.Ctx) {
	l.m.stats.SequenceNaks++
	l.back().NAK(&l.m.tx, l.incomplete(), l.msn, wire.NakPSNSequence)
	note := ""
	if c.Observed() {
		note = "a request is missing, or there was no room to hold it"
	}
	c.Emit(&l.m.tx, note)
}

// refuseAgain repeats a fatal NAK.
func (l *lane) refuseAgain(c *pipeline.Ctx) pipeline.Verdict {
	l.m.stats.RefusedAgain++
	l.sendFatal(c)
	return pipeline.Drop(ReasonDead)
}

func (l *lane) sendFatal(c *pipeline.Ctx) {
	l.back().NAK(&l.m.tx, l.deadPSN, l.msn, l.fatal)
	note := ""
	if c.Observed() {
		note = "the request has failed for good: " + l.fatal.String()
	}
	c.Emit(&l.m.tx, note)
}

// answer tells the client the outcome of a WRITE or an atomic.
func (l *lane) answer(c *pipeline.Ctx, r *record) {
	f := &l.m.tx
	if r.op.Is(wire.OpAtomic) {
		l.back().AtomicACK(f, r.psn, l.msn, r.prior)
	} else {
		l.back().ACK(f, r.psn, l.msn)
	}
	c.Emit(f, l.noteAnswer(c, r, f.BTH.Opcode))
}

// answerAgain answers a duplicate, or remembers to do so behind a READ before it that is being executed again: its
// answer must come first, or the client would take it as lost (IBTA 9.7.6.1).
func (l *lane) answerAgain(c *pipeline.Ctx, r *record) pipeline.Verdict {
	l.m.stats.AnsweredAgain++
	switch {
	case !l.waitsForRedo(r):
		l.answer(c, r)
	case r.owed: // asked twice: the client does not wait for that READ
		l.endRedos(c, r.psn)
	default:
		l.owe(r)
	}
	return pipeline.Consume()
}

// owe remembers to answer later.
func (l *lane) owe(r *record) {
	if !r.owed {
		r.owed = true
		l.window.owed++
	}
}

// waitsForRedo reports whether a READ before r is being executed again.
func (l *lane) waitsForRedo(r *record) bool {
	if l.window.redos == 0 {
		return false
	}
	for pos := l.window.head; pos != l.window.tail; pos++ {
		if q := l.window.at(pos); q.redo {
			return wire.Diff(q.psn, r.psn) < 0
		}
	}
	return false
}

// redo notes that a READ on the own connection is executed again.
func (l *lane) redo(c *pipeline.Ctx, r *record) {
	l.m.stats.Redone++
	if r.redo {
		return
	}
	if l.window.redos == 0 {
		l.redoAt = c.Now.Add(l.m.cfg.RedoTime)
		defer l.schedule()
	}
	r.redo = true
	l.window.redos++
}

// redoMoved executes a READ on the shared connection again. It gets a place behind all others there: that changes
// nothing but what it sees, which may be newer (IBTA 9.7.4.1).
func (l *lane) redoMoved(c *pipeline.Ctx, r *record, p *pipeline.Parsed) pipeline.Verdict {
	conn := l.s.links[int(r.shard)%len(l.s.links)].conn
	if p.RETH.VA != r.va || p.RETH.RKey != r.rkey || p.RETH.Length != r.length {
		l.m.stats.Forged++
		return pipeline.Drop(ReasonOther)
	}
	if !r.again {
		if !conn.Submit(c, &p.Frame, l.tag(r.psn)) {
			return pipeline.Drop(ReasonHeldFull)
		}
		r.again = true
	}
	l.redo(c, r)
	return pipeline.Consume()
}

// endRedo is called when the response to a READ that was executed again is on its way to the client: the answers behind
// it follow.
func (l *lane) endRedo(c *pipeline.Ctx, psn wire.PSN) {
	if r := l.window.find(psn); r != nil && r.redo {
		r.redo = false
		l.window.redos--
	}
	l.answerOwed(c)
	l.schedule()
}

// endRedos waits no longer for the READs before psn: the client has no use for them, or will ask again.
func (l *lane) endRedos(c *pipeline.Ctx, psn wire.PSN) {
	for pos := l.window.head; pos != l.window.tail; pos++ {
		if r := l.window.at(pos); r.redo && wire.Diff(r.psn, psn) < 0 {
			r.redo = false
			l.window.redos--
		}
	}
	l.answerOwed(c)
}

// answerOwed sends the answers that were owed, up to the next READ that is being executed again.
func (l *lane) answerOwed(c *pipeline.Ctx) {
	for pos := l.window.head; pos != l.window.tail && l.window.owed > 0; pos++ {
		r := l.window.at(pos)
		if r.redo {
			return
		}
		if r.owed {
			r.owed = false
			l.window.owed--
			l.answer(c, r)
		}
	}
}
