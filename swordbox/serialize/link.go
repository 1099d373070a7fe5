package serialize

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// link is a shared connection of a server. It handles the results of its requester (Done, Retry,
// Failed).
type link struct {
	s          *server
	shard      int
	conn       *requester.Conn
	generation uint32
	ownQPN     wire.QPN
	// grace computes the time before which all requests that were submitted to this connection are
	// known to have ended.
	grace   atomiccache.Grace
	slowing slowing
	rate    rate // of rules.SlowConnection
}

// Done handles the end of a request on the shared connection.
func (k *link) Done(c *pipeline.Ctx, t requester.Tag, a requester.Answer) {
	m := k.s.m
	m.kick = true
	l := m.flows.byTag(t)
	if l == nil {
		m.stats.Orphans++
		return
	}
	r := l.replies.window.find(t.PSN)
	if r == nil || r.state != inFlight {
		l.redone(c, r, a)
		return
	}
	l.out--
	k.endWord(c, r, a)
	if a.Kind == requester.Returned && l.phase != refused && l.phase != closed {
		l.takeBack(c)
		return
	}
	l.replies.window.finish(r)
	if l.phase == closed || l.phase == refused {
		l.reap()
		return
	}
	l.answered()
	m.step.from = transform.Note{From: a.Op, Conn: k.conn.Number(), PSN: a.PSN, Made: a.Op == 0}
	l.deliver(c, r, a) // deliver releases no held request: settle does, in the order of m.blocked
	m.step.from = transform.Note{Made: true}
}

// endWord reports the end of a request to its word. If the server refused the request, endWord bans
// the R_Key from shared connections.
func (k *link) endWord(c *pipeline.Ctx, r *record, a requester.Answer) {
	r.prior = a.Prior
	if a.Kind == requester.Acked && r.op.Is(wire.OpAtomic) {
		r.prior = r.decision.Prior // the server returns no value for a replaced atomic
	}
	if a.Kind == requester.Refused {
		k.s.keys.ban(r.rkey)
	}
	if r.word == nil {
		return
	}
	switch a.Kind {
	case requester.Refused:
		r.word.Refused(c.Now, r.decision)
	case requester.Lost:
		r.word.Undone(c.Now, r.decision)
		r.word.Reset(c.Now)
	case requester.Returned:
		r.word.Undone(c.Now, r.decision)
	default:
		r.word.Answered(c.Now, r.decision, a.Prior)
	}
	r.word = nil
}

// deliver sends the client the answer to a request that has ended on the shared connection.
func (l *sequencer) deliver(c *pipeline.Ctx, r *record, a requester.Answer) {
	switch a.Kind {
	case requester.Refused:
		l.die(c.Now, r.psn, a.Syndrome)
		l.replies.sendFatal(c)
	case requester.Lost:
		l.die(c.Now, r.psn, wire.NakRemoteOp)
		l.replies.sendFatal(c)
	case requester.Read:
		l.replies.countMSN()
		l.replies.deliverRead(c, r, a.Frame)
	default:
		l.replies.countMSN()
		switch {
		case !r.ackReq && !r.op.Is(wire.OpAtomic):
			// The client requested no acknowledgement. A later answer covers the request.
		case l.replies.window.waitsForRedo(r.psn):
			l.replies.window.follow(r, evOwe)
		default:
			l.replies.answer(c, r)
		}
	}
}

// redone handles the end of a READ that the server has executed again for a duplicate. r is nil if
// the window has no record of the READ any more.
func (l *sequencer) redone(c *pipeline.Ctx, r *record, a requester.Answer) {
	if r == nil || l.phase == closed {
		return
	}
	if a.Kind == requester.Read && r.op == wire.RCReadRequest {
		l.replies.deliverRead(c, r, a.Frame)
	}
	if r.state.isRedo() {
		l.endRedo(c, r.psn)
		return
	}
	l.replies.window.follow(r, evRedone)
}

// endRedo is called when the switch has sent the client the response to a READ that the server has
// executed again, or when there will be no response. It sends the answers that waited for this
// response.
func (l *sequencer) endRedo(c *pipeline.Ctx, psn wire.PSN) {
	if r := l.replies.window.find(psn); r != nil && r.state.isRedo() {
		l.replies.window.follow(r, evRedone)
	}
	l.replies.answerOwed(c)
	l.schedule()
}

// Retry reports whether the refused request was the WRITE of a replaced atomic. Such a refusal does
// not end the client's connection, because the key may allow atomics only. The client sends the
// atomic again, and the switch does not replace atomics of that word any more.
func (k *link) Retry(t requester.Tag) bool {
	l := k.s.m.flows.byTag(t)
	if l == nil || l.phase == closed || l.phase == refused {
		return false
	}
	r := l.replies.window.find(t.PSN)
	if r == nil || r.state != inFlight || r.word == nil || r.decision.Kind != atomiccache.Write && r.decision.Kind != atomiccache.EmptyWrite {
		return false
	}
	r.word.Literal = true
	return true
}

// Failed is called when the shared connection has failed. It makes the values of the connection's
// words unknown, because the server may or may not have executed the requests in flight.
func (k *link) Failed(c *pipeline.Ctx, why string) {
	m := k.s.m
	if m.byQPN[k.ownQPN] == k {
		delete(m.byQPN, k.ownQPN)
	}
	m.stats.LinkFailures++
	m.kick = true
	k.forget()
	m.cfg.Failed(c, switchconn.Key{Server: k.s.addr, Shard: k.shard}, k.generation, why)
}

// forget makes the values of the connection's words unknown. It is called when the connection has
// ended: the last packet of one of its requests may still be on the way to the server.
func (k *link) forget() {
	k.slowing.forget()
	k.rate = rate{}
	k.s.unsettled = true
	k.s.m.words.Each(func(w *atomiccache.Word) {
		if w.Server == k.s.index && k.s.shardOf(w.VA) == k.shard {
			w.Forget()
		}
	})
}

// Describe adds the original operation of a moved request to a note.
func (k *link) Describe(t requester.Tag, n *transform.Note) {
	l := k.s.m.flows.byTag(t)
	if l == nil {
		return
	}
	n.QPN = l.flow.RespQPN
	if r := l.replies.window.find(t.PSN); r != nil {
		n.From = r.op
		if r.word != nil && r.op.Is(wire.OpAtomic) && n.To == wire.RCWriteOnly {
			n.Prior, n.Show = r.decision.Prior, transform.ShowPrior
			if r.decision.Kind == atomiccache.Write {
				n.Value, n.Show = r.decision.Value, n.Show|transform.ShowValue
			}
		}
	}
}
