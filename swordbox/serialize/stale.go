package serialize

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A held request must not be sent after its client has given it up: the client's queue pair has
// failed or its host has died. The server would execute the request after other requests: those of
// the client on another connection, or those of the next owner of its lock. The place of such a
// request may become free at any time. If the server has executed the requests before it on the
// client's connection, although the switch has not seen the answers, the request even has the PSN
// that the server expects.
//
// A NIC retransmits an unanswered request after each of its timeouts, and its queue pair fails one
// timeout after the last retransmission. So the switch measures the interval between the
// transmissions of the first held request, and drops the held requests when the client has sent
// nothing for that time. A NIC that has not given up retransmits these requests.

// heard records when a client with held requests has sent packets.
type heard struct {
	// at is when a request of the flow arrived last.
	at clock.Time
	// first is the PSN of the first held request. sentAt is when it arrived last. interval is the
	// shortest time between two of its transmissions; 0: it is not known.
	first    wire.PSN
	sentAt   clock.Time
	interval time.Duration
}

// transmitted is called when the first held request arrives, or arrives again. The client's NIC
// does not wait for its timeout after a sequence NAK, and the network may duplicate packets, so
// intervals that are shorter than any timeout do not count.
func (h *heard) transmitted(now clock.Time, psn wire.PSN) {
	d := now.Sub(h.sentAt)
	switch {
	case psn != h.first:
		h.first, h.interval = psn, 0
	case d >= formerAge && (h.interval == 0 || d < h.interval):
		h.interval = d
	}
	h.sentAt = now
}

// givenUp returns the time at which the client may have given up its held requests, if it sends
// nothing until then. longest is used while the interval between transmissions is not known.
func (h *heard) givenUp(longest time.Duration) clock.Time {
	if h.interval > 0 {
		longest = min(longest, h.interval)
	}
	return h.at.Add(longest)
}

// longestHold returns how long after the client's last transmission its held requests are dropped
// if the interval between transmissions is not known. It includes the time for which the switch may
// make a CAS wait for its value.
func (s *server) longestHold() time.Duration { return s.m.cfg.HoldTime + s.patience }

// dropStale drops the held requests of a flow if the client may have given them up.
func dropStale(l *sequencer, now clock.Time) bool {
	if l.held.n == 0 || now < l.heard.givenUp(l.s.longestHold()) {
		return false
	}
	l.m.stats.HoldTimeouts++
	l.giveUpHeld()
	return true
}
