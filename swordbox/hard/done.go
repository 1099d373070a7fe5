package hard

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/dial"
	"github.com/rdmalab/rdmalab/swordbox/hard/shared"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rewrite"
	"github.com/rdmalab/rdmalab/swordbox/words"
)

// link is a shared connection of a server, and the user of its requester.
type link struct {
	s          *server
	shard      int
	conn       *shared.Conn
	generation uint32
	ownQPN     wire.QPN
}

// laneByTag is the lane that submitted a request; nil if it is not there any more.
func (m *Machine) laneByTag(t shared.Tag) *lane {
	if int(t.Lane) >= len(m.lanes) {
		return nil
	}
	if l := m.lanes[t.Lane]; l != nil && l.serial == t.Generation {
		return l
	}
	return nil
}

// Done ends a request on the shared connection.
func (k *link) Done(c *pipeline.Ctx, t shared.Tag, a shared.Answer) {
	m := k.s.m
	m.kick = true
	l := m.laneByTag(t)
	if l == nil {
		m.stats.Orphans++
		return
	}
	r := l.window.find(t.PSN)
	if r == nil || r.done {
		l.redone(c, r, a)
		return
	}
	l.out--
	l.endWord(c, r, a)
	if a.Kind == shared.Returned && !l.dead && !l.closed {
		l.takeBack(c)
		return
	}
	l.window.finish(r)
	if l.closed {
		l.reap()
		return
	}
	if l.dead {
		return
	}
	l.answered()
	m.from = rewrite.Note{From: a.Op, Conn: k.conn.Number(), PSN: a.PSN, Made: a.Op == 0}
	l.deliver(c, r, a) // what is held goes on in settle, in the order of waiting
	m.from = rewrite.Note{Made: true}
}

// endWord tells the word of a request how it ended, and the table of keys what a refusal says.
func (l *lane) endWord(c *pipeline.Ctx, r *record, a shared.Answer) {
	r.prior = a.Prior
	if a.Kind == shared.Acked && r.op.Is(wire.OpAtomic) {
		r.prior = r.decision.Prior // it was replaced
	}
	switch a.Kind {
	case shared.Refused:
		l.s.keys.ban(r.rkey)
		if r.word != nil {
			r.word.Refused(c.Now, r.decision)
		}
	case shared.Lost:
		if r.word != nil {
			r.word.Undone(c.Now, r.decision)
			r.word.Reset(c.Now)
		}
	case shared.Returned:
		if r.word != nil {
			r.word.Undone(c.Now, r.decision)
		}
	default:
		if r.word != nil {
			r.word.Answered(c.Now, r.decision, a.Prior)
		}
	}
	r.word = nil
}

// deliver answers the client.
func (l *lane) deliver(c *pipeline.Ctx, r *record, a shared.Answer) {
	switch a.Kind {
	case shared.Refused:
		l.die(c.Now, r.psn, a.Syndrome)
		l.sendFatal(c)
	case shared.Lost:
		l.die(c.Now, r.psn, wire.NakRemoteOp)
		l.sendFatal(c)
	case shared.Read:
		l.msn = (l.msn + 1) & mask24
		l.deliverRead(c, r, a.Frame)
	default:
		l.msn = (l.msn + 1) & mask24
		switch {
		case !r.ackReq && !r.op.Is(wire.OpAtomic):
			// It was not asked for, and a later answer will acknowledge it.
		case l.waitsForRedo(r):
			l.owe(r)
		default:
			l.answer(c, r)
		}
	}
}

// deliverRead sends the response to a READ on.
func (l *lane) deliverRead(c *pipeline.Ctx, r *record, f *wire.Frame) {
	rewrite.Response(f, l.back(), r.psn, l.msn)
	c.Emit(f, l.noteAnswer(c, r, f.BTH.Opcode))
}

// redone ends a READ that was executed again. r is nil if the window has moved on.
func (l *lane) redone(c *pipeline.Ctx, r *record, a shared.Answer) {
	if r == nil || l.closed {
		return
	}
	r.again = false
	if a.Kind == shared.Read && r.op == wire.RCReadRequest {
		l.deliverRead(c, r, a.Frame)
	}
	if r.redo {
		l.endRedo(c, r.psn)
	}
}

// Retry gives back a replaced atomic whose WRITE was refused: perhaps the key allows atomics only. It goes as what it is then.
func (k *link) Retry(t shared.Tag) bool {
	l := k.s.m.laneByTag(t)
	if l == nil || l.closed || l.dead {
		return false
	}
	r := l.window.find(t.PSN)
	if r == nil || r.done || r.word == nil || r.decision.Kind != words.Write && r.decision.Kind != words.EmptyWrite {
		return false
	}
	r.word.Literal = true
	return true
}

// Failed forgets the values of the connection's words: what was sent may or may not have been executed.
func (k *link) Failed(c *pipeline.Ctx, why string) {
	m := k.s.m
	if m.byQPN[k.ownQPN] == k {
		delete(m.byQPN, k.ownQPN)
	}
	m.stats.LinkFailures++
	m.kick = true
	k.forget()
	m.cfg.Failed(c, dial.Key{Server: k.s.addr, Shard: k.shard}, k.generation, why)
}

// forget takes the values of the connection's words as unknown.
func (k *link) forget() {
	k.s.m.words.Each(func(w *words.Word) bool {
		if w.Server == k.s.index && k.s.shardOf(w.VA) == k.shard {
			w.Forget()
		}
		return true
	})
}

// Describe says what a request was before it moved.
func (k *link) Describe(t shared.Tag, n *rewrite.Note) {
	l := k.s.m.laneByTag(t)
	if l == nil {
		return
	}
	if r := l.window.find(t.PSN); r != nil {
		n.From = r.op
		if r.word != nil && r.op.Is(wire.OpAtomic) && n.To == wire.RCWriteOnly {
			n.Prior, n.Show = r.decision.Prior, rewrite.ShowPrior
			if r.decision.Kind == words.Write {
				n.Value, n.Show = r.decision.Value, n.Show|rewrite.ShowValue
			}
		}
	}
}
