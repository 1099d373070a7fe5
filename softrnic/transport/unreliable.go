package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// unreliableSender sends for UC and UD. A work request completes when its last packet is in
// Actions. The sender does not notice if a packet is lost.
type unreliableSender struct {
	sender *sender
	// at is when send must be called again because a step reached its limit of packets.
	at clock.Time
}

// send sends the work requests in the send queue, at most Window packets a step; the rest is due at
// once, so that other queue pairs can send in between.
func (u *unreliableSender) send(now clock.Time, out *Actions) {
	if u.at != clock.Never {
		return // an earlier step has reached its limit; the next Tick sends the rest
	}
	s := u.sender
	for budget := s.cfg.Window; s.sq.len() > 0 && (s.state == verbs.StateRTS || s.state == verbs.StateSQD); {
		w := s.sq.at(s.sq.head)
		if !w.started {
			if s.state == verbs.StateSQD {
				break // in SQD no work request is started
			}
			w.started = true
			if start := s.svc.start; start != nil {
				start(u, w)
			}
		}
		switch {
		case w.status != verbs.Success:
		case w.local():
			s.executeLocal(w, out)
		case budget == 0:
			u.at = now
			return
		default:
			if at, wait := mustPause(s.cfg.Flow, now); wait {
				u.at = at
				return
			}
			budget--
			before := len(out.Tx)
			s.svc.packet(u, w, out)
			charge(s.cfg.Flow, now, before, out)
		}
		if w.status != verbs.Success {
			u.fail(w, out)
		}
	}
	s.checkDrained(out)
}

// fail completes w, the oldest work request, with its error status and flushes the others. The send
// queue then stays in SQE until ResumeRTS; receiving continues (IBTA 10.3.1/sqe).
func (u *unreliableSender) fail(w *sendWQE, out *Actions) {
	to, err := next(u.sender.svc.states, u.sender.state, evSendFault)
	if err != nil {
		panic("transport: a send failed in a state that does not send: " + u.sender.state.String())
	}
	u.sender.state = to
	u.at, u.sender.draining = clock.Never, false
	u.sender.flushed = reason.AfterFailure
	u.sender.completeSend(w, w.status, u.sender.noteFailure(w.status, w.code()), out)
	u.sender.flush(out)
}
