package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// check checks the invariants after every step.
func (p *play) check() {
	s := p.s
	fail := func(format string, args ...any) {
		p.t.Helper()
		p.t.Fatalf("step %d, state %v: "+format, append([]any{p.steps, s.qp.State()}, args...)...)
	}
	p.checkOutput(fail)
	s.file()
	s.out.Reset()
	p.checkCompletions(fail)
	switch s.qp.State() {
	case verbs.StateRTR, verbs.StateRTS, verbs.StateSQD, verbs.StateSQE:
		p.checkOwed(fail)
		if s.qp.core.svc.packet == nil {
			p.checkFlight(fail)
		}
	case verbs.StateError:
		if q := s.qp; q.req.sender.sq.len() > 0 || len(q.rsp.answers.owed) > 0 || q.rcv.rq.len() > 0 && q.rcv.flushAt == clock.Never {
			fail("%d sends, %d answers, %d receives are left", q.req.sender.sq.len(), len(q.rsp.answers.owed), q.rcv.rq.len())
		}
		if q := s.qp; q.Deadline() != q.rcv.flushAt {
			fail("a timer runs for %v", q.Deadline())
		}
	}
}

// checkOutput checks the bounds of the packets that a step sends.
func (p *play) checkOutput(fail func(string, ...any)) {
	s := p.s
	if n := len(s.out.Tx); n > 4*s.qp.core.cfg.Window+maxOwed(4) {
		fail("%d packets in one step", n)
	}
	for i := range s.out.Tx {
		if n := len(s.out.Tx[i].Packet.Payload); n > 1024 || s.qp.core.cfg.Type != verbs.UD && n > fuzzMTU {
			fail("%d bytes of payload", n)
		}
	}
}

// checkCompletions checks that the completions of each queue come in the order of posts, each once,
// and that none is missing when the queue is empty.
func (p *play) checkCompletions(fail func(string, ...any)) {
	var wc [1]verbs.WC
	for p.s.scq.Poll(wc[:]) == 1 {
		if wc[0].ID <= p.sendDone || wc[0].ID > p.sendID {
			fail("send %d is completed after %d of %d", wc[0].ID, p.sendDone, p.sendID)
		}
		if wc[0].Status == verbs.WRFlushErr && p.s.qp.core.cfg.SignalAll && wc[0].ID != p.sendDone+1 {
			fail("send %d is flushed after %d", wc[0].ID, p.sendDone)
		}
		p.sendDone = wc[0].ID
	}
	for p.s.rcq.Poll(wc[:]) == 1 {
		if wc[0].ID != p.recvDone+1 {
			fail("receive %d is completed after %d", wc[0].ID, p.recvDone)
		}
		p.recvDone = wc[0].ID
	}
	q := p.s.qp
	queued := uint64(q.rcv.rq.len())
	if q.core.cfg.SRQ != nil {
		queued += uint64(q.core.cfg.SRQ.rq.len())
	}
	if p.recvDone+queued != p.recvID {
		fail("%d receives posted, %d completed, %d queued", p.recvID, p.recvDone, queued)
	}
	if q.core.cfg.SignalAll && p.sendDone+uint64(q.req.sender.sq.len()) != p.sendID {
		fail("%d sends posted, %d completed, %d queued", p.sendID, p.sendDone, q.req.sender.sq.len())
	}
}

// checkOwed checks that the owed answers are in PSN order, in bounds, and due.
func (p *play) checkOwed(fail func(string, ...any)) {
	a := &p.s.qp.rsp.answers
	if len(a.owed) > maxOwed(a.maxRdAtomic) || a.fresh() > a.maxRdAtomic {
		fail("%d answers are owed, %d of them with resources", len(a.owed), a.fresh())
	}
	for i := 1; i < len(a.owed); i++ {
		if wire.Diff(a.owed[i-1].psn, a.owed[i].psn) > 0 {
			fail("answer to %v stands before that to %v", a.owed[i-1].psn, a.owed[i].psn)
		}
	}
	if len(a.owed) > 0 && a.at == clock.Never {
		fail("%d answers are owed, and none is due", len(a.owed))
	}
}

// checkFlight checks that the requester's counters agree with its work requests, and that there is
// a deadline while anything is in flight.
func (p *play) checkFlight(fail func(string, ...any)) {
	q := &p.s.qp.req
	flight, reads := 0, 0
	next := q.una
	for pos := q.sender.sq.head; pos != q.sender.sq.tail; pos++ {
		w := q.sender.sq.at(pos)
		if !w.started {
			break
		}
		if w.sent > w.requests() || w.acked > w.packets || w.first.Add(int(w.acked)) != next && w.packets > 0 {
			fail("work request %d: sent %d, acknowledged %d of %d from %v, una %v", w.id, w.sent, w.acked, w.packets, w.first, q.una)
		}
		next = w.first.Add(int(w.packets))
		flight += w.inFlight()
		if w.answered() {
			reads++
		}
	}
	if q.window.flight != flight || q.sender.reads != reads {
		fail("flight %d and %d READs and atomics, the work requests say %d and %d", q.window.flight, q.sender.reads, flight, reads)
	}
	if q.window.size > q.cfg.Window || q.window.size < 0 {
		fail("window %d of %d", q.window.size, q.cfg.Window)
	}
	if q.offset(q.maxPSN) > q.offset(q.sender.nextPSN) || q.offset(q.sender.nextPSN) > maxOutstandingPSNs {
		fail("una %v, maxPSN %v, nextPSN %v", q.una, q.maxPSN, q.sender.nextPSN)
	}
	timer := q.retry.at != clock.Never || q.retry.rnrAt != clock.Never || q.rts.Timeout == 0
	if flight > 0 && !timer && p.s.qp.State() != verbs.StateRTR {
		fail("%d packets are in flight, and no timer runs", flight)
	}
}
