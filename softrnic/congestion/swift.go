package congestion

import (
	"math"
	"math/bits"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// SwiftParams are the parameters of Swift, by the names of its paper (SIGCOMM 2020, algorithm 1 and
// section 3.5). Windows are in units of 1/1024 packets.
type SwiftParams struct {
	// AI is the additive increase a round trip in 1/1024 packets; Beta the factor of a decrease and
	// MaxMDF the largest decrease, both in units of 1/1024.
	AI     int64 `json:"swift_ai"`
	Beta   int64 `json:"swift_beta"`
	MaxMDF int64 `json:"swift_max_mdf"`
	// BaseTarget is the target delay of a large window. FSRange is what the smallest window adds to it:
	// the target falls from FSMinCwnd to FSMaxCwnd.
	BaseTarget time.Duration `json:"swift_base_target"`
	FSRange    time.Duration `json:"swift_fs_range"`
	FSMinCwnd  int64         `json:"swift_fs_min_cwnd"`
	FSMaxCwnd  int64         `json:"swift_fs_max_cwnd"`
	// MinCwnd and MaxCwnd bound the window. It begins with MaxCwnd.
	MinCwnd int64 `json:"swift_min_cwnd"`
	MaxCwnd int64 `json:"swift_max_cwnd"`
	// RetxReset is how many timeouts in succession make the window the smallest.
	RetxReset int64 `json:"swift_retx_reset_threshold"`
}

// swiftDefaults are the values of the htsim simulator (csg-htsim), where it has them.
func swiftDefaults() SwiftParams {
	return SwiftParams{
		AI: 1024, Beta: 819, MaxMDF: 512, BaseTarget: 20 * time.Microsecond, FSRange: 100 * time.Microsecond,
		FSMinCwnd: 102, FSMaxCwnd: 100 << 10, MinCwnd: 10, MaxCwnd: 128 << 10, RetxReset: 5,
	}
}

// Swift is Swift (Kumar et al., SIGCOMM 2020, algorithm 1): a Controller that changes the number of packets
// in flight by the delay. A window below one packet is a pause between packets.
//
// It has the fabric window alone: acknowledgements do not say what the peer's part of the delay was. All
// ways of a rack have the same number of hops, so that their part of the target delay is in BaseTarget.
// It ignores CNPs, and needs acknowledgements: READ responses, datagrams and an unreliable connection have
// the line rate.
type Swift struct {
	p    *Params
	cwnd uint64        // in units of 2^-cwndBits packets
	rtt  time.Duration // the last round-trip time
	cut  clock.Time    // the last decrease
	lost int64         // timeouts in succession
	size uint64        // bits of a packet
}

// NewSwift returns the Swift of one queue pair. It reads p at each event, so that changes of *p
// apply at once. p must be valid.
func (p *Params) NewSwift() *Swift {
	return &Swift{p: p, cwnd: packets(p.MaxCwnd), cut: math.MinInt64 / 2}
}

// cwndBits is so large that the smallest windows are exact to a thousandth, and so small that products of
// windows are below 2^64.
const cwndBits = 20

// packets returns a window of 1/1024 packets in the units of Swift.cwnd.
func packets(n int64) uint64 { return uint64(n) << (cwndBits - 10) }

// Acked takes an acknowledgement. One without a round-trip time is judged by the last one.
func (s *Swift) Acked(now clock.Time, a Ack) {
	s.lost = 0
	n := uint64(min(max(a.Packets, 1), 1<<14))
	s.size = uint64(max(a.Bytes, 1)) * 8 / n
	if a.RTT > 0 {
		s.rtt = min(a.RTT, maxPeriod)
	}
	target := s.target()
	switch {
	case s.rtt == 0:
	case s.rtt < target:
		add := packets(s.p.AI) * n
		if s.cwnd >= 1<<cwndBits {
			add = add << cwndBits / s.cwnd
		}
		s.cwnd += add
	case a.RTT > 0:
		share := uint64(s.rtt-target) << (shareBits - 10) * uint64(s.p.SwiftParams.Beta) / uint64(s.rtt)
		s.decrease(now, min(share, uint64(s.p.MaxMDF)<<(shareBits-10)))
	}
	s.clamp()
}

// Lost handles a NAK as the paper's fast recovery, and a timeout.
func (s *Swift) Lost(now clock.Time, l Loss) {
	if l == LossTimeout {
		s.lost++
	} else {
		s.lost = 0
	}
	if s.lost >= s.p.RetxReset {
		s.cwnd = packets(s.p.MinCwnd)
	} else {
		s.decrease(now, uint64(s.p.MaxMDF)<<(shareBits-10))
	}
	s.clamp()
}

// decrease lowers the window by a share, at most once in a round trip.
func (s *Swift) decrease(now clock.Time, share uint64) {
	if now.Sub(s.cut) < s.rtt {
		return
	}
	s.cut = now
	s.cwnd = part(s.cwnd, 1<<shareBits-share)
}

func (s *Swift) clamp() {
	s.cwnd = min(max(s.cwnd, packets(s.p.MinCwnd), 1), max(packets(s.p.MaxCwnd), 1))
}

// target returns the target delay: BaseTarget, and a part of FSRange that falls with the root of the
// window (section 3.5).
func (s *Swift) target() time.Duration {
	low, high := inverseRoot(uint64(s.p.FSMaxCwnd)<<(shareBits-10)), inverseRoot(uint64(s.p.FSMinCwnd)<<(shareBits-10))
	at := min(max(inverseRoot(s.cwnd>>(cwndBits-shareBits)), low), high)
	if high <= low {
		return s.p.BaseTarget // two windows that are almost equal
	}
	hi, lo := bits.Mul64(uint64(s.p.FSRange), at-low)
	scaled, _ := bits.Div64(hi, lo, high-low)
	return s.p.BaseTarget + time.Duration(scaled)
}

// inverseRoot returns 2^23/√x for a number x with shareBits bits behind the point, rounded down.
func inverseRoot(x uint64) uint64 {
	square := uint64(1<<62) / max(x, 1)
	r := uint64(math.Sqrt(float64(square)))
	for r*r > square {
		r--
	}
	for (r+1)*(r+1) <= square {
		r++
	}
	return r
}

// part returns a share of x, in units of 2^-shareBits, up to 1.
func part(x, share uint64) uint64 {
	hi, lo := bits.Mul64(x, share)
	return hi<<(64-shareBits) | lo>>shareBits
}

// Limit returns the window in whole packets. A window below one packet is one, at a rate of cwnd packets
// a round trip.
func (s *Swift) Limit() (int64, int) {
	rate := s.p.MaxRate
	if s.cwnd < 1<<cwndBits && s.rtt > 0 {
		// cwnd·size/rtt; 2^9, which a second has as a factor in ns, keeps the product below 2^64.
		slow := s.cwnd * min(s.size, 1<<20) * (uint64(time.Second) >> 9) / (uint64(s.rtt) << (cwndBits - 9))
		rate = min(rate, int64(max(slow, 1)))
	}
	return rate, max(1, int(s.cwnd>>cwndBits))
}

// State implements Shower. Rate is the window in a round trip, Alpha the share of the round-trip time that
// is above the target.
func (s *Swift) State() State {
	st := State{Rate: s.p.MaxRate, Target: s.p.MaxRate, Active: s.cwnd < packets(s.p.MaxCwnd)}
	if s.rtt > 0 {
		st.Rate = int64(min(float64(st.Rate), float64(s.cwnd)/(1<<cwndBits)*float64(s.size)/s.rtt.Seconds()))
		st.Alpha = max(0, 1-float64(s.target())/float64(s.rtt))
	}
	return st
}

func (*Swift) Sent(clock.Time, int) {}
func (*Swift) Notified(clock.Time)  {}
func (*Swift) Tick(clock.Time)      {}
func (*Swift) Deadline() clock.Time { return clock.Never }
