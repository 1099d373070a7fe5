package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// What UC and UD have in common: a work request is complete when its last packet was handed out, and nobody is told
// of what was dropped.

// sendUnreliable sends what is in the send queue, at most Window packets: the rest is due at once, so that other queue
// pairs come between.
func (q *QP) sendUnreliable(now clock.Time, out *Actions) {
	if q.req.sendAt != clock.Never {
		return // this step is for others
	}
	for budget := q.cfg.Window; q.sq.len() > 0 && (q.state == verbs.StateRTS || q.state == verbs.StateSQD); {
		w := q.sq.at(q.sq.head)
		if !w.started {
			if q.state == verbs.StateSQD {
				break // begins nothing new
			}
			w.started = true
			q.svc.start(q, w)
		}
		switch {
		case w.status != verbs.Success:
		case w.local():
			q.executeLocal(w, out)
		case budget == 0:
			q.req.sendAt = now
			return
		default:
			budget--
			q.svc.packet(q, w, out)
		}
		if w.status != verbs.Success {
			q.failSend(w.status, out)
		}
	}
	q.checkDrained(out)
}

// failSend completes the oldest work request with a status and the rest with flushes. The send queue is in error until
// ResumeRTS; receiving goes on (IBTA 10.3.1/sqe).
func (q *QP) failSend(status verbs.Status, out *Actions) {
	to, err := next(q.svc.states, q.state, evSendFault)
	if err != nil {
		panic("transport: a send failed in a state that does not send: " + q.state.String())
	}
	q.state = to
	q.req.stop()
	q.completeSend(q.sq.at(q.sq.head), status, out)
	q.flushSends(out)
}

// refuseUnreliable ends the reception of a message that failed a check: nobody is told (IBTA 9.9.3/silent, responder
// class D). Only a receive whose own memory is bad ends the queue pair (IBTA 9.9.3/local, class A).
func (q *QP) refuseUnreliable(v verdict, out *Actions) {
	c := q.env.Counters
	if v == refuseNotReady {
		c.OutOfBuffer++
		return
	}
	f := &refusals[v]
	f.count(c)
	if f.counter == countLocal {
		q.completeRecv(verbs.WC{Status: f.recv}, out)
		q.raise(f.event, out)
		q.fault(out)
	}
}
