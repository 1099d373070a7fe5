package congestion

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// TimelyParams are the parameters of TIMELY, by the names of its paper (SIGCOMM 2015, section 4.3 and
// table 1).
type TimelyParams struct {
	// Alpha is the weight of a new difference of round-trip times, Beta the factor of a decrease; both in
	// units of 1/1024.
	Alpha int64 `json:"timely_alpha"`
	Beta  int64 `json:"timely_beta"`
	// TLow and THigh: below TLow the rate always rises, above THigh it always falls.
	TLow  time.Duration `json:"timely_t_low"`
	THigh time.Duration `json:"timely_t_high"`
	// MinRTT is the round-trip time to which differences are compared.
	MinRTT time.Duration `json:"timely_min_rtt"`
	// Delta is the step of the additive increase in bits a second.
	Delta int64 `json:"timely_delta"`
}

// timelyDefaults are the values of the paper, as the simulator of HPCC's authors has them.
func timelyDefaults() TimelyParams {
	return TimelyParams{
		Alpha: 896, Beta: 819, TLow: 50 * time.Microsecond, THigh: 500 * time.Microsecond, MinRTT: 20 * time.Microsecond, Delta: 10_000_000,
	}
}

// Timely is TIMELY (Mittal et al., SIGCOMM 2015, algorithm 1): a Controller that changes the rate by the
// gradient of the round-trip time. It begins at the line rate and knows no window. It ignores CNPs and
// losses, and needs acknowledgements: the rate of READ responses, of datagrams and of an unreliable
// connection stays the line rate.
type Timely struct {
	p    *Params
	rate uint64        // in units of 2^-rateBits bits a second
	prev time.Duration // the last round-trip time; 0 before the first
	diff int64         // smoothed difference in units of 2^-shareBits ns
	// falling counts the samples in succession whose gradient is not positive.
	falling int
}

const (
	// shareBits: factors and differences have so many bits behind the point.
	shareBits = 16
	// timelyHyper is how many samples without a positive gradient begin hyperactive increase, in which
	// a step is timelyHyper times Delta (section 4.3).
	timelyHyper = 5
)

// NewTimely returns the TIMELY of one queue pair. It reads p at each event, so that changes of *p
// apply at once. p must be valid.
func (p *Params) NewTimely() *Timely { return &Timely{p: p, rate: uint64(p.MaxRate) << rateBits} }

// Acked takes a round-trip time.
func (t *Timely) Acked(_ clock.Time, a Ack) {
	rtt := min(a.RTT, maxPeriod)
	if rtt <= 0 {
		return
	}
	if t.prev == 0 {
		t.prev = rtt
	}
	change := int64(rtt-t.prev) << shareBits
	t.prev = rtt
	t.diff += (change - t.diff) / 1024 * t.p.TimelyParams.Alpha
	gradient := t.diff / int64(t.p.MinRTT)
	if gradient > 0 {
		t.falling = 0
	} else {
		t.falling++
	}
	delta := uint64(t.p.Delta) << rateBits
	switch {
	case rtt < t.p.TLow:
		t.rate += delta
	case rtt > t.p.THigh:
		t.cut(t.p.TimelyParams.Beta << (shareBits - 10) * int64(rtt-t.p.THigh) / int64(rtt))
	case gradient > 0:
		t.cut(gradient * t.p.TimelyParams.Beta / 1024)
	case t.falling >= timelyHyper:
		t.rate += timelyHyper * delta
	default:
		t.rate += delta
	}
	t.rate = min(max(t.rate, uint64(t.p.MinRate)<<rateBits), uint64(t.p.MaxRate)<<rateBits)
}

// cut lowers the rate by a share in units of 2^-shareBits, at most all of it.
func (t *Timely) cut(share int64) {
	t.rate = part(t.rate, 1<<shareBits-min(uint64(share), 1<<shareBits))
}

// Limit returns the rate.
func (t *Timely) Limit() (int64, int) { return min(int64(t.rate>>rateBits), t.p.MaxRate), 0 }

// State implements Shower. Alpha is the normalised gradient, if it is positive.
func (t *Timely) State() State {
	rate, _ := t.Limit()
	g := float64(max(t.diff, 0)) / (1 << shareBits) / float64(t.p.MinRTT)
	return State{Rate: rate, Target: rate, Alpha: g, Active: rate < t.p.MaxRate}
}

func (*Timely) Sent(clock.Time, int)  {}
func (*Timely) Notified(clock.Time)   {}
func (*Timely) Lost(clock.Time, Loss) {}
func (*Timely) Tick(clock.Time)       {}
func (*Timely) Deadline() clock.Time  { return clock.Never }
