package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// unreliableSender sends for UC and UD: a work request is complete when its last packet has been
// appended to Actions, and a loss is reported to neither end.
type unreliableSender struct {
	*sender
	// at is due when there is more to send than one step may.
	at clock.Time
}

// send sends the work requests in the send queue, at most Window packets: the rest is due at once,
// so that other queue pairs can send in between.
func (u *unreliableSender) send(now clock.Time, out *Actions) {
	if u.at != clock.Never {
		return // this step is for others
	}
	for budget := u.cfg.Window; u.sq.len() > 0 && (u.state == verbs.StateRTS || u.state == verbs.StateSQD); {
		w := u.sq.at(u.sq.head)
		if !w.started {
			if u.state == verbs.StateSQD {
				break // begins nothing new
			}
			w.started = true
			u.svc.start(u, w)
		}
		switch {
		case w.status != verbs.Success:
		case w.local():
			u.executeLocal(w, out)
		case budget == 0:
			u.at = now
			return
		default:
			budget--
			u.svc.packet(u, w, out)
		}
		if w.status != verbs.Success {
			u.fail(w.status, out)
		}
	}
	u.checkDrained(out)
}

// fail completes the oldest work request with a status and the rest with flushes. The send queue is
// in error until ResumeRTS; receiving continues (IBTA 10.3.1/sqe).
func (u *unreliableSender) fail(status verbs.Status, out *Actions) {
	to, err := next(u.svc.states, u.state, evSendFault)
	if err != nil {
		panic("transport: a send failed in a state that does not send: " + u.state.String())
	}
	u.state = to
	u.at, u.draining = clock.Never, false
	u.completeSend(u.sq.at(u.sq.head), status, out)
	u.flush(out)
}
