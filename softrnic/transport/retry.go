package transport

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// retry is what the requester remembers between two rounds of going back.
//
// Silence and NAKs are counted apart, each up to RetryCount: a peer that answers is not one that has gone, and with a
// common count one lossy link in a million retries would look like a dead peer.
type retry struct {
	left    uint8 // retries for a timeout left until something is acknowledged or answered with a NAK
	nakLeft uint8 // retries for a sequence NAK, also an implied one
	rnrLeft uint8
	// implied is set by a retry for an implied NAK until something is acknowledged or the timer expires. What
	// was answered before that retry is still on its way and must not cause another one.
	implied bool
}

// newRetry has all counters full.
func newRetry(a verbs.ToRTS) retry {
	return retry{left: a.RetryCount, nakLeft: a.RetryCount, rnrLeft: a.RNRRetry}
}

// ackTimeoutUnit is the local ACK timeout for code 0: 4.096 µs · 2^code (IBTA 9.7.6.1.3/timeout).
const ackTimeoutUnit = 4096 * time.Nanosecond

// rnrTimers are the RNR NAK timer codes (IBTA 9.7.5.2.8/timer).
var rnrTimers = [32]time.Duration{
	655360 * time.Microsecond,
	10 * time.Microsecond,
	20 * time.Microsecond,
	30 * time.Microsecond,
	40 * time.Microsecond,
	60 * time.Microsecond,
	80 * time.Microsecond,
	120 * time.Microsecond,
	160 * time.Microsecond,
	240 * time.Microsecond,
	320 * time.Microsecond,
	480 * time.Microsecond,
	640 * time.Microsecond,
	960 * time.Microsecond,
	1280 * time.Microsecond,
	1920 * time.Microsecond,
	2560 * time.Microsecond,
	3840 * time.Microsecond,
	5120 * time.Microsecond,
	7680 * time.Microsecond,
	10240 * time.Microsecond,
	15360 * time.Microsecond,
	20480 * time.Microsecond,
	30720 * time.Microsecond,
	40960 * time.Microsecond,
	61440 * time.Microsecond,
	81920 * time.Microsecond,
	122880 * time.Microsecond,
	163840 * time.Microsecond,
	245760 * time.Microsecond,
	327680 * time.Microsecond,
	491520 * time.Microsecond,
}

// RNRDelay is how long an RNR NAK with this timer code makes a requester wait.
func RNRDelay(code uint8) time.Duration { return rnrTimers[code%32] }

// AckTimeout is the local ACK timeout of a code from 1 to 31. Code 0 waits for ever.
func AckTimeout(code uint8) time.Duration { return ackTimeoutUnit << (code % 32) }

func (q *QP) ackTimeout() time.Duration { return AckTimeout(q.rts.Timeout) }

// tickRequester does what the requester's timers ask for.
func (q *QP) tickRequester(now clock.Time, out *Actions) {
	if q.req.rnrAt <= now {
		q.req.rnrAt = clock.Never
		q.pump(now, out)
	}
	if q.req.retryAt <= now {
		q.sawRetry("timeout")
		q.env.Counters.LocalAckTimeoutErr++
		q.req.retry.implied = false
		q.narrow(minWindow)
		q.goBack(now, &q.req.retry.left, out)
	}
}

// progress is called when una has moved: the peer is alive, so counters and timer start again (IBTA
// 9.7.6.1.3/progress).
func (q *QP) progress() {
	q.req.retry = newRetry(q.rts)
	q.req.retryAt, q.req.rnrAt = clock.Never, clock.Never // pump arms the timer if something is in flight
}

// goBack sends everything from una on again, or gives up when the counter is exhausted. False is giving up.
func (q *QP) goBack(now clock.Time, left *uint8, out *Actions) bool {
	if *left == 0 {
		q.env.Counters.RetryExceededErr++
		q.failOldest(verbs.RetryExcErr, out)
		return false
	}
	*left--
	q.rewind()
	q.pump(now, out)
	return true
}

// rewind makes una the next PSN to be sent.
func (q *QP) rewind() {
	for pos := q.sq.head; pos != q.sq.tail; pos++ {
		w := q.sq.at(pos)
		if !w.started {
			break
		}
		if w.sent = w.acked; w.answered() {
			w.sent = 0
		}
	}
	q.sq.send = q.sq.head
	q.req.flight = 0
	q.req.retryAt = clock.Never
}

// impliedNak handles an answer to something behind a READ or atomic whose own answer is missing (IBTA
// 9.7.6.1/implied-nak).
func (q *QP) impliedNak(now clock.Time, out *Actions) {
	if q.req.retry.implied {
		q.env.Counters.DuplicateAck++
		return
	}
	q.env.Counters.ImpliedNakSeqErr++
	if q.nakked(now, out) {
		q.req.retry.implied = true
	}
}

// nakked goes back for a sequence NAK, sent or implied. The peer is not silent.
func (q *QP) nakked(now clock.Time, out *Actions) bool {
	q.sawRetry("NAK")
	q.req.retry.left = q.rts.RetryCount
	q.narrow(q.req.window / 2)
	return q.goBack(now, &q.req.retry.nakLeft, out)
}

// receiverNotReady handles an RNR NAK for una: wait, then send everything from una on again (IBTA
// 9.7.5.2.8/wait).
func (q *QP) receiverNotReady(now clock.Time, code uint8, out *Actions) {
	q.sawRetry("RNR")
	q.env.Counters.RcvdRnrErr++
	if q.rts.RNRRetry != rnrForEver {
		if q.req.retry.rnrLeft == 0 {
			q.env.Counters.RetryRnrExceededErr++
			q.failOldest(verbs.RNRRetryExcErr, out)
			return
		}
		q.req.retry.rnrLeft--
	}
	// A peer that says it is not ready is there, and has seen everything before: only rnr_retry may end this. Without
	// that, a long wait on a lossy link would use up the other counters, as some of the RNR NAKs are lost and only
	// the sequence NAKs that follow them arrive.
	q.req.retry.left, q.req.retry.nakLeft = q.rts.RetryCount, q.rts.RetryCount
	q.rewind()
	q.req.rnrAt = now.Add(RNRDelay(code))
}
