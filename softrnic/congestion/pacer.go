package congestion

import (
	"math"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

const (
	// MaxBurst is the largest burst in bytes: what one queue pair sends between two pauses.
	MaxBurst = 16 << 10
	// lateness bounds how much time a pacer makes up for when its caller was late.
	lateness = time.Millisecond
)

// Pacer spreads the packets of one queue pair over time. Packets leave in bursts, with one deadline
// for a burst: as many bytes as the rate gives in the time that the caller needs to wake up, at
// least one packet, and at most MaxBurst.
//
// If the caller is late, the pacer makes up for at most a millisecond, so that the mean rate does not
// depend on how fast the caller wakes up: by longer bursts, up to MaxBurst, and pauses of half the
// length. If that is not enough, the next burst is due at once, behind those of other queue pairs.
// A queue pair that had nothing to send makes up for nothing.
type Pacer struct {
	// wake is how long the caller needs to wake up; 0 gives bursts of one packet.
	wake time.Duration
	// at is when the next burst may begin; paid is when the rate has made room for all bytes sent, and
	// carry is a fraction of a nanosecond, in bits of it times the rate, that paid leaves out.
	at, paid clock.Time
	carry    uint64
	// begun is when the present burst began, burst what it has sent and left what it may still send,
	// in bytes.
	begun       clock.Time
	burst, left int
	waits       bool // the caller has asked, and must wait
	yielded     bool // the present burst has ended, and other queue pairs had their turn
	// Late counts bursts that began later than the time that the caller needs to wake up.
	Late uint64
}

// Ready reports whether the next packet may leave. If it may not, At says when to ask again.
func (p *Pacer) Ready(now clock.Time, rate int64) bool {
	if rate <= 0 {
		return true
	}
	if p.left > 0 && (now == p.begun || now < p.at) {
		return true
	}
	if now < p.at || now == p.begun && p.burst > 0 && !p.yielded {
		p.waits, p.yielded = true, true
		return false
	}
	since := p.paid
	if p.waits {
		if now.Sub(p.at) > p.wake {
			p.Late++
		}
		p.paid = max(p.paid, now.Add(-lateness))
	} else {
		p.paid = max(p.paid, now)
	}
	if p.paid != since {
		p.carry = 0
	}
	p.waits = false
	p.begun, p.burst, p.yielded = now, 0, false
	owed := min(p.wake+max(now.Sub(p.paid), 0), 2*lateness) // rate*owed is below 2^63
	p.left = int(max(1, min(rate*int64(owed)/int64(8*time.Second), MaxBurst)))
	return true
}

// Sent is called for a packet that leaves after Ready: n is the length of its frame in bytes.
func (p *Pacer) Sent(n int, rate int64) {
	if rate <= 0 {
		return
	}
	// The time that n bytes take is n·8·10^9/rate ns; carry is the remainder of the division.
	num := uint64(n)*8*uint64(time.Second) + p.carry
	p.paid = p.paid.Add(time.Duration(min(num/uint64(rate), math.MaxInt32)))
	p.carry = num % uint64(rate)
	p.burst += n
	if p.left -= n; p.left < n {
		p.left = 0 // another packet would make the burst too long
	}
	if p.paid <= p.begun {
		p.at = p.begun // more than this burst is to be made up for
		return
	}
	half := time.Duration(int64(p.burst) * 4 * int64(time.Second) / rate)
	p.at = max(p.paid, p.begun.Add(half))
}

// At returns when the next burst may begin.
func (p *Pacer) At() clock.Time { return p.at }
