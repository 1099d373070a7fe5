package serialize

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The switch must not send a held request that its client has given up: the client's queue pair has
// failed or its host has died. The server would execute the request after later requests: those of
// the client on another connection, or those of the next owner of its lock. The place of such a
// request may become free at any time. It may even have the PSN that the server expects: the server
// may have executed the requests before it on the client's connection, without the switch having
// seen the answers.
//
// A NIC retransmits an unanswered request after each of its timeouts, and its queue pair fails one
// timeout after the last retransmission. So the switch measures the interval between the
// transmissions of the first held request. When the client has sent nothing for that interval, the
// switch drops the held requests. A NIC that has not given up retransmits these requests.

// heard records when a client with held requests has sent packets.
type heard struct {
	// at is when a request of the flow arrived last.
	at clock.Time
	// first is the PSN of the first held request. sentAt is when this request arrived last.
	// interval is the shortest time between two of its transmissions; 0 means not known.
	first    wire.PSN
	sentAt   clock.Time
	interval time.Duration
}

// transmitted measures the interval between transmissions of the first held request; it is called
// each time that this request arrives. Intervals below formerAge, which is shorter than any
// timeout, do not count: a NIC that gets a sequence NAK does not wait for its timeout, and the
// network may duplicate packets.
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

// givenUp returns the time at which the client counts as having given up its held requests, if it
// sends nothing until then. That is one interval between transmissions after its last request, or
// the time `longest` after it if the interval is longer or not known.
func (h *heard) givenUp(longest time.Duration) clock.Time {
	if h.interval > 0 {
		longest = min(longest, h.interval)
	}
	return h.at.Add(longest)
}

// longestHold returns how long after the client's last transmission the switch drops its held
// requests if it does not know the interval between transmissions. It includes the time for which
// the switch may make a CAS wait for its value.
func (s *server) longestHold() time.Duration { return s.m.cfg.HoldTime + s.patience }

// dropStale drops the held requests of a flow if the client may have given them up. It reports
// whether it did.
func (l *sequencer) dropStale(now clock.Time) bool {
	if l.waits.held.n == 0 || now < l.waits.heard.givenUp(l.s.longestHold()) {
		return false
	}
	l.m.stats.HoldTimeouts++
	l.giveUpHeld()
	return true
}
