package serialize

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// placeOwn is the place of requests on the client's connection. The other places are the numbers of
// the shards.
const placeOwn = -1

// sequencer serialises the requests of one flow. It takes them in the order of their PSNs, sends
// each to its place, and answers the client in the same order. The package comment lists its parts.
type sequencer struct {
	m             *Machine
	s             *server
	flow          *conntrack.Flow
	generation    uint32 // generation of the flow
	index, serial uint32 // place and serial number in flowTable

	phase  phase
	naks   nakState
	permit permit
	// next is the PSN of the next new request. The requests with PSNs from psns.client to before
	// next are held. psns knows the places of the requests before psns.client.
	next wire.PSN
	// place is where the last request was sent. If that is a shared connection, out is the number
	// of the flow's requests in flight there.
	place int
	out   int
	// moved counts the flow's requests that were not sent on the client's connection.
	moved   uint64
	formers formers

	conn    clientConn
	replies replies
	waits   waitingRoom
	rate    rate // of rules.SlowFlow and rules.SlowQueue
	turn    turn
}

// permit is the answer of Config.Moving for a flow: whether its requests may move.
type permit uint8

const (
	permitUnknown permit = iota // Config.Moving was not called yet
	permitGiven
	permitDenied
)

// start ends the loose phases, in which the switch does not know the PSN that the server expects.
// psn is the PSN that the server expects when all forwarded requests have arrived. alone is true if
// all requests before psn have been answered.
func (l *sequencer) start(now clock.Time, psn wire.PSN, alone bool) {
	l.conn.reaches()
	sent := l.phase.hasForwarded()
	l.next = psn
	if alone && sent {
		l.ackOwn(now, psn)
	}
	if alone || !sent || wire.Diff(l.conn.acked, psn) > 0 {
		l.conn.acked = psn
	}
	if l.phase == untouched {
		l.replies.hasMSN = true // no request was sent before, so the responder counts messages from 0
	}
	l.phase.on(evSynced)
	l.conn.psns.start(psn, l.m.cfg.Segments)
}

// idle reports whether no request of the flow is in flight, so that the next request may take
// another connection.
func (l *sequencer) idle() bool {
	return l.out == 0 && l.replies.window.outstanding() == 0 && l.conn.isAnswered()
}

// canGo reports whether the next request may be sent now to a place: placeOwn, or a shard.
func (l *sequencer) canGo(place int) bool { return l.place == place || l.idle() }

// incomplete returns the PSN of the oldest unanswered request, or that of the next request if there
// is none.
func (l *sequencer) incomplete() wire.PSN {
	psn := l.conn.psns.client
	if !l.conn.isAnswered() && l.conn.msg != openRead {
		psn = psn.Add(-l.conn.unanswered())
	}
	if r := l.replies.window.oldest(); r != nil {
		if p := r.psn.Add(r.got); wire.Diff(p, psn) < 0 {
			psn = p
		}
	}
	return psn
}

// mayMove reports whether requests of the flow may move. It calls Config.Moving once for each flow.
// Requests do not move once one end is closing the connection by a DREQ: a server fences a client
// by a DREQ, and destroys its own queue pair of the connection. If the client's host was suspended
// meanwhile, its late requests must fail because the queue pair is gone. They must not reach the
// server on another connection.
func (l *sequencer) mayMove() bool {
	if l.flow.ReqQPN == 0 || !l.replies.hasMSN || l.phase == refused || l.flow.State == conntrack.Closing || !l.conn.isProven() {
		return false
	}
	if l.permit == permitUnknown {
		l.permit = permitGiven
		if !l.m.cfg.Moving(l.flow) {
			l.permit = permitDenied
			l.m.stats.NotRecorded++
		}
		l.answered()
	}
	return l.permit == permitGiven
}

// answered calls Config.Answered with the PSN of the oldest unanswered request, if requests of the
// flow may move.
func (l *sequencer) answered() {
	if l.permit == permitGiven {
		l.m.cfg.Answered(l.flow, l.incomplete())
	}
}

// assign appends the client's next n PSNs to the PSN map. If moved is true, a shared connection
// carries the requests with these PSNs, or the switch answers them itself. If moved is false, they
// go on the client's connection. Before that, assign evicts the records of the window that the n
// PSNs make too old.
func (l *sequencer) assign(n int, moved bool) {
	l.replies.window.age(l.conn.psns.client, n)
	l.conn.psns.add(n, moved)
}

// advance counts a new request with span PSNs as received.
func (l *sequencer) advance(span int) {
	l.next = l.next.Add(span)
	l.flow.Expected = l.next
}

// ackOwn records that the server has executed all requests before `end` on the client's connection.
func (l *sequencer) ackOwn(now clock.Time, end wire.PSN) {
	if l.conn.ack(now, end) {
		l.m.kick = l.m.kick || l.waits.blocked
	}
}

// schedule sets the deadline of the sequencer.
func (l *sequencer) schedule() {
	at := clock.Never
	if l.waits.held.n > 0 {
		at = l.waits.heard.givenUp(l.s.longestHold())
		if l.waits.awaits.word != nil {
			at = min(at, l.waits.missUntil(&l.m.held))
		}
		at = min(at, l.rate.deadline())
		if l.turn.since != 0 && !l.turn.told {
			at = min(at, l.turn.since.Add(l.m.longestWait()))
		}
	}
	if l.replies.window.redos > 0 {
		at = clock.Min(at, l.replies.redoAt)
	}
	l.m.due.Set(l.index, at)
}

// tick handles the deadlines of the sequencer that have passed. It drops held requests that the
// client may have given up. It makes a held CAS stop waiting for the value that it compares with,
// and answers stop waiting for READs that the server executes again.
func (l *sequencer) tick(ctx *pipeline.Ctx) {
	l.dropStale(ctx.Now)
	if l.rate.due(ctx.Now) {
		l.rate.at = 0
		l.m.kick = true
	}
	if l.waits.held.n > 0 && l.turn.overdue(ctx.Now, l.m.longestWait()) && !l.turn.told {
		l.turn.told = true
		l.m.kick = true
	}
	if l.waits.held.n > 0 && l.waits.awaits.word != nil && l.waits.missUntil(&l.m.held) <= ctx.Now {
		l.waits.awaits = waiting{}
		l.m.kick = true
	}
	if l.replies.window.redos > 0 && l.replies.redoAt <= ctx.Now {
		l.replies.endRedos(ctx, l.next)
	}
	l.schedule()
}

// giveUpHeld drops the held requests of the flow. They then count as not received, so the switch
// takes the client's retransmissions of them as new requests.
func (l *sequencer) giveUpHeld() {
	l.turn = turn{}
	for l.waits.held.n > 0 {
		l.m.stats.HeldDropped++
		l.m.popHeld(&l.waits.held)
	}
	l.waits.awaits = waiting{}
	if !l.phase.isLoose() {
		l.next = l.conn.psns.client
		l.flow.Expected = l.next
	}
	l.schedule()
}

// die ends the flow because the server or the switch refuses the request with PSN psn by a fatal
// NAK with syndrome s. The NAK puts the client's queue pair into the error state.
func (l *sequencer) die(now clock.Time, psn wire.PSN, s wire.Syndrome) {
	if l.phase == refused {
		return
	}
	l.phase.on(evRefused)
	l.replies.deadPSN, l.replies.deadEnd, l.replies.fatal = psn, psn, s
	l.m.stats.Deaths++
	// The client's queue pair cannot be used any more, so the table of flows may evict the flow
	// when it is idle.
	l.flow.Pinned = false
	l.conn.drop(now)
	l.giveUpHeld()
}

// close ends the sequencer. Its index becomes free when its last request on a shared connection has
// ended.
func (l *sequencer) close() {
	for l.waits.held.n > 0 {
		l.m.popHeld(&l.waits.held)
	}
	l.naks.on(evRoom)
	l.m.blocked.prune()
	l.m.due.Remove(l.index)
	l.phase.on(evEnded)
	l.reap()
}

// reap frees the index of the sequencer if it is closed and has no request in flight.
func (l *sequencer) reap() {
	if l.phase == closed && l.out == 0 {
		l.m.flows.remove(l)
	}
}

// takeBack undoes the move of requests that the server will not execute, because it has refused an
// earlier one. The requests then count as not received, and a sequence NAK makes the client send
// them again. The switch must not keep them for the next shared connection, which may belong to
// another incarnation of the server: before requests of the flow move again, the switch needs a
// proof that the client's connection ends at the same incarnation (see proof). takeBack is called
// for each of these requests, and acts at the last one.
func (l *sequencer) takeBack(c *pipeline.Ctx) {
	l.m.stats.TakenBack++
	if l.out > 0 {
		return // Done calls takeBack for the other requests in the same step
	}
	l.conn.psns.rewind(l.replies.window.takeBack())
	l.giveUpHeld() // the held requests follow the ones that are taken back
	l.naks.on(evNak)
	l.sendSequenceNak(c)
}
