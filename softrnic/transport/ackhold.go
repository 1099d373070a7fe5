package transport

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// AckHold is how long a queue pair with Config.Acks above 1 holds an ACK back at most.
const AckHold = 3 * time.Microsecond

// MaxAcks is the largest Config.Acks.
const MaxAcks = 64

// wait decides whether an ACK that is all that the responder owes waits for further requests, which it
// then answers, too. If so, it sets the time at which the ACK is due.
func (a *answers) wait(now clock.Time) bool {
	if !a.cfg.CoalesceAcks || a.cfg.Acks == 1 || !a.onlyAck() {
		return false
	}
	switch n := a.owed[0].requests; {
	case a.cfg.Acks == 0:
		a.at = now
	case n >= a.cfg.Acks:
		return false
	case a.at == clock.Never:
		a.at = now.Add(AckHold)
	}
	return true
}
