package transport

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// retransmission decides when and how often a requester retransmits. It has the timers, the retry
// counters, and the state between two retries.
//
// Timeouts and NAKs have separate counters, each up to RetryCount. A NAK shows that the peer is
// alive. With one counter for both, a lossy link would look like a dead peer about once in a
// million retries.
type retransmission struct {
	left    uint8 // retries that are left for timeouts; an acknowledgement or a NAK resets it to RetryCount
	nakLeft uint8 // retries that are left for sequence NAKs, sent or implied
	rnrLeft uint8 // retries that are left for RNR NAKs; not used if RNRRetry is 7
	// implied is set by a retry for an implied NAK, and cleared when a request is acknowledged or
	// the timer expires. Responses to packets that were sent before that retry may still arrive;
	// they must not cause another retry.
	implied bool
	// at is when the ACK timer expires; rnrAt is when the pause that an RNR NAK has demanded ends.
	at, rnrAt clock.Time
}

// start resets all counters to RetryCount and RNRRetry, and stops both timers.
func (t *retransmission) start(a verbs.ToRTS) {
	*t = retransmission{left: a.RetryCount, nakLeft: a.RetryCount, rnrLeft: a.RNRRetry}
	t.stop()
}

func (t *retransmission) stop() { t.at, t.rnrAt = clock.Never, clock.Never }

// ackTimeoutUnit is the factor of the local ACK timeout, which is 4.096 µs · 2^code (IBTA
// 9.7.6.1.3/timeout).
const ackTimeoutUnit = 4096 * time.Nanosecond

// rnrTimers are the delays of the RNR NAK timer codes (IBTA 9.7.5.2.8/timer).
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

// RNRDelay returns how long a requester waits after an RNR NAK with this timer code.
func RNRDelay(code uint8) time.Duration { return rnrTimers[code%32] }

// AckTimeout returns the local ACK timeout of a code from 1 to 31. The caller must handle code 0,
// which means no timeout.
func AckTimeout(code uint8) time.Duration { return ackTimeoutUnit << (code % 32) }

// armTimer starts the ACK timer. Timeout code 0 means no timer.
func (r *requester) armTimer(now clock.Time) {
	r.retry.at = clock.Never
	if r.rts.Timeout != 0 {
		r.retry.at = now.Add(AckTimeout(r.rts.Timeout))
	}
}

func (r *requester) tick(now clock.Time, out *Actions) {
	if r.retry.rnrAt <= now {
		r.retry.rnrAt = clock.Never
		r.pump(now, out)
	}
	if r.sel != nil {
		r.sel.tick(now, out)
	}
	if r.retry.at <= now {
		r.sawRetry("timeout")
		r.env.Counters.LocalAckTimeoutErr++
		r.retry.implied = false
		if r.sel != nil {
			r.sel.rec.Expire(now)
		} else {
			r.lost(now, congestion.LossTimeout, minWindow)
		}
		r.goBack(now, &r.retry.left, reason.Timeout, out)
	}
}

// progress is called when something was acknowledged, so that una, the oldest PSN that is not
// acknowledged, has moved. The peer is alive: the retry counters are reset and the timers stopped
// (IBTA 9.7.6.1.3/progress).
func (r *requester) progress() {
	if r.heal.open {
		r.healed()
	}
	r.retry.start(r.rts) // pump arms the timer if something is in flight
}

// goBack makes the requester send again everything that is not acknowledged (from PSN una on), and
// decrements the retry counter *left. If the counter is already 0, goBack makes the queue pair fail
// with RetryExcErr and returns false. code is the reason.
func (r *requester) goBack(now clock.Time, left *uint8, code reason.Code, out *Actions) bool {
	if *left == 0 {
		r.env.Counters.RetryExceededErr++
		r.sender.failOldest(verbs.RetryExcErr, code, out)
		return false
	}
	*left--
	if n := r.noteRetry(now, code, r.rts.RetryCount, *left); code == reason.Timeout {
		n.Wait = AckTimeout(r.rts.Timeout)
	}
	r.rewind()
	r.pump(now, out)
	return true
}

// rewind sets the send queue back: the next PSN to be sent is the oldest one that is not
// acknowledged (una).
func (r *requester) rewind() {
	if r.sel != nil { // the scoreboard knows what to send again
		r.retry.at = clock.Never
		return
	}
	for pos := r.sender.sq.head; pos != r.sender.sq.tail; pos++ {
		w := r.sender.sq.at(pos)
		if !w.started {
			break
		}
		if w.sent = w.acked; w.answered() {
			w.sent = 0
		}
	}
	r.sender.sq.send = r.sender.sq.head
	r.window.flight = 0
	r.pace.stop()
	r.retry.at = clock.Never
}

// impliedNak is called when a response shows that the response to an earlier READ or atomic was
// lost (IBTA 9.7.6.1/implied-nak). It starts a retry.
func (r *requester) impliedNak(now clock.Time, out *Actions) {
	if r.retry.implied {
		r.env.Counters.DuplicateAck++
		return
	}
	r.env.Counters.ImpliedNakSeqErr++
	if r.nakked(now, reason.ImpliedNak, out) {
		r.retry.implied = true
	}
}

// nakked starts a retry because of a sequence NAK, sent or implied. The NAK shows that the peer is
// alive, so the counter of timeouts is reset.
func (r *requester) nakked(now clock.Time, code reason.Code, out *Actions) bool {
	r.sawRetry("NAK")
	r.retry.left = r.rts.RetryCount
	r.lost(now, congestion.LossNak, r.window.size/2)
	return r.goBack(now, &r.retry.nakLeft, code, out)
}

// receiverNotReady handles an RNR NAK for the oldest PSN that is not acknowledged (una): the
// requester waits for the time of the code, then sends everything from una on again (IBTA
// 9.7.5.2.8/wait).
func (r *requester) receiverNotReady(now clock.Time, code uint8, out *Actions) {
	r.sawRetry("RNR")
	r.env.Counters.RcvdRnrErr++
	if r.rts.RNRRetry != rnrForEver {
		if r.retry.rnrLeft == 0 {
			r.env.Counters.RetryRnrExceededErr++
			r.sender.failOldest(verbs.RNRRetryExcErr, reason.NotReady, out)
			return
		}
		r.retry.rnrLeft--
	}
	r.noteRetry(now, reason.NotReady, r.rts.RNRRetry, r.retry.rnrLeft).Wait = RNRDelay(code)
	// A peer that sends an RNR NAK is alive and has received every packet before it, so only RNRRetry
	// may limit these waits. During a long wait on a lossy link, some RNR NAKs are lost and only the
	// sequence NAKs behind them arrive. These would use up the other counters.
	r.retry.left, r.retry.nakLeft = r.rts.RetryCount, r.rts.RetryCount
	r.rewind()
	r.retry.rnrAt = now.Add(RNRDelay(code))
}
