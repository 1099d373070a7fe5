package serialize

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// replies is what the switch needs to be the responder towards the client of a flow: the records of
// requests, and the state of the answers to them.
type replies struct {
	m    *Machine
	flow *conntrack.Flow
	// msn is the MSN of the last answer to the client; valid if hasMSN.
	msn    uint32
	hasMSN bool
	window window
	// late is valid if isLate is true: the PSN of an ACK for duplicates of WRITEs whose records
	// have left the window. The switch sends this ACK after the responses of READs that the server
	// executes again.
	late   wire.PSN
	isLate bool
	// redoAt is the time at which the switch stops waiting for a READ that is executed again, and
	// sends the answers that wait for it.
	redoAt clock.Time
	// deadPSN is the PSN of the request that was refused. fatal is the syndrome of the NAK. Both
	// are valid in phase refused. If the flow was refused because of a duplicate, the requests from
	// deadPSN to before deadEnd were executed; otherwise deadEnd is deadPSN.
	deadPSN, deadEnd wire.PSN
	fatal            wire.Syndrome
	// cnpAt is the earliest time for the next congestion notification to the client.
	cnpAt clock.Time
	// client and clientQPN name the flow's requester and its queue pair. Listings need them after
	// the flow has ended.
	client    netip.Addr
	clientQPN wire.QPN
}

// back returns the path of answers to the client. It is the path of the server's responses or, if
// there were none, the reverse path of the requests.
func (a *replies) back() *transform.Path {
	if p := a.flow.Peer; p != nil && p.HasPath && p.Path.DestQP == a.flow.ReqQPN {
		return &p.Path
	}
	a.m.step.path = a.flow.Path.Back(a.flow.ReqQPN)
	return &a.m.step.path
}

// isUnproven reports whether the client's connection may not exist: neither the server nor the
// connection manager has shown that it does.
func (a *replies) isUnproven() bool { return !a.hasMSN && !a.flow.Synced() && !a.flow.HasAcked }

// raiseMSN returns the MSN for an answer of the server that the switch forwards. msn is the
// server's MSN plus the number of moved requests. The result never decreases, not even for answers
// to duplicates.
func (a *replies) raiseMSN(msn uint32) uint32 {
	msn &= mask24
	if !a.hasMSN || wire.Diff(wire.PSN(msn), wire.PSN(a.msn)) > 0 {
		a.msn, a.hasMSN = msn, true
	}
	return a.msn
}

// countMSN advances the MSN for a message that was completed on a shared connection or by the
// switch.
func (a *replies) countMSN() { a.msn = (a.msn + 1) & mask24 }

// sendFatal sends the client the fatal NAK of a flow in phase refused.
func (a *replies) sendFatal(c *pipeline.Ctx) {
	a.back().NAK(&a.m.step.tx, a.deadPSN, a.msn, a.fatal)
	note := ""
	if c.Observed() {
		note = "the request has failed and the connection has ended: " + a.fatal.String()
	}
	c.Emit(&a.m.step.tx, note)
}

// refuseAgain sends the fatal NAK of a refused flow again, because the client has sent the request
// with PSN psn again. A client's NIC ignores a NAK that names a request which has been answered.
// The requests from deadPSN to before deadEnd were executed, and the client may have got answers to
// those before psn. So the NAK names the later one of psn and deadPSN, but no PSN behind deadEnd.
func (a *replies) refuseAgain(c *pipeline.Ctx, psn wire.PSN) pipeline.Verdict {
	if wire.Diff(psn, a.deadEnd) > 0 {
		psn = a.deadEnd
	}
	if wire.Diff(psn, a.deadPSN) > 0 {
		a.deadPSN = psn
	}
	a.m.stats.RefusedAgain++
	a.sendFatal(c)
	return pipeline.Drop(ReasonDead)
}

// answer sends the client the answer to a WRITE, an atomic, an ATOMIC_WRITE or a FLUSH.
func (a *replies) answer(c *pipeline.Ctx, r *record) {
	f := &a.m.step.tx
	switch {
	case r.op == wire.RCAtomicWrite, r.op == wire.RCFlush:
		a.back().Written(f, r.psn, a.msn)
	case r.op.Is(wire.OpAtomic):
		a.back().AtomicACK(f, r.psn, a.msn, r.prior)
	default:
		a.back().ACK(f, r.psn, a.msn)
	}
	c.Emit(f, a.noteAnswer(c, r, f.BTH.Opcode))
}

// deliverRead forwards the response to a READ on a shared connection to the client.
func (a *replies) deliverRead(c *pipeline.Ctx, r *record, f *wire.Frame) {
	transform.Response(f, a.back(), r.psn, a.msn)
	c.Emit(f, a.noteAnswer(c, r, f.BTH.Opcode))
}

// emitOwn sends a response on the client's connection to the client at once. So the response leaves
// the switch before all packets that this step emits later.
func (a *replies) emitOwn(c *pipeline.Ctx, p *pipeline.Parsed, raw wire.PSN) {
	a.m.stats.Rewritten++
	transform.Renumber(&p.Frame, p.BTH.PSN)
	c.Emit(&p.Frame, noteResponse(c, p, raw))
}

// endRedos stops waiting for those READs before psn that the server executes again, and sends the
// answers that waited for them. The client does not need those READs, or will ask for them again.
func (a *replies) endRedos(c *pipeline.Ctx, psn wire.PSN) {
	for pos := a.window.head; pos != a.window.tail; pos++ {
		if r := a.window.at(pos); r.state.isRedo() && wire.Diff(r.psn, psn) < 0 {
			a.window.follow(r, evWaitNoMore)
		}
	}
	a.answerOwed(c)
}

// answerOwed sends the owed answers, oldest first, up to the first READ for which answers to later
// requests still wait (isRedo). If no such READ is before a.late, it also sends the ACK with this PSN.
func (a *replies) answerOwed(c *pipeline.Ctx) {
	for pos := a.window.head; pos != a.window.tail && a.window.owed > 0; pos++ {
		r := a.window.at(pos)
		if r.state.isRedo() {
			return
		}
		if r.state == owed {
			a.window.follow(r, evPaid)
			a.answer(c, r)
		}
	}
	if a.isLate && !a.window.waitsForRedo(a.late) {
		a.isLate = false
		a.m.stats.AnsweredAgain++
		a.answer(c, &record{psn: a.late, asked: asked{op: wire.RCWriteOnly}})
	}
}
