package congestion

import (
	"math/bits"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// DCQCN is the reaction point of DCQCN: a Controller. Params.Profile decides between the rules of
// the paper (section 3, figure 7) and those of HPCC's simulator for ConnectX NICs.
//
// The first increases after a cut bring the rate back to the target rate by halves (fast recovery),
// the next ones also raise the target rate by AIRate (additive increase), and when both the timer
// and the byte counter have made more than Threshold increases, by a multiple of HAIRate (hyper
// increase).
//
// Before the first CNP, and when the rate has returned to the line rate and alpha has decayed below
// 1/1024, no timer runs.
type DCQCN struct {
	p *Params
	// rate and target are in units of 2^-rateBits bits a second; alpha in units of 2^-alphaBits.
	rate, target, alpha  uint64
	timeStage, byteStage uint32
	bytes                int64
	// timeAt, alphaAt and cutAt are when the increase timer and the update of alpha are due, and until
	// when a monitor period lasts.
	timeAt, alphaAt, cutAt clock.Time
	// seen: a CNP has arrived in this period of alpha; owes: one has arrived in this monitor period,
	// and the rate is cut at its end. The paper's rules use neither.
	seen, owes bool
	active     bool
	begun      bool // a CNP has arrived
}

const (
	rateBits  = 10
	alphaBits = 48
	// alphaRest: timers stop when alpha is below it and the rate is the line rate.
	alphaRest = 1 << alphaBits / 1024
)

// NewDCQCN returns the reaction point of one queue pair, at line rate. It reads p at each event, so
// that changes of *p apply at once. p must be valid.
func (p *Params) NewDCQCN() *DCQCN {
	d := &DCQCN{p: p, alpha: uint64(p.InitialAlpha) << (alphaBits - 10)}
	d.rate = d.line()
	d.target = d.rate
	d.rest()
	return d
}

func (d *DCQCN) line() uint64 { return uint64(d.p.MaxRate) << rateBits }

// rest stops all timers.
func (d *DCQCN) rest() {
	d.active, d.seen, d.owes = false, false, false
	d.timeAt, d.alphaAt, d.cutAt = clock.Never, clock.Never, clock.Never
	d.bytes = 0
}

// periodic reports whether alpha is updated in fixed periods, instead of by each CNP.
func (d *DCQCN) periodic() bool { return d.p.Profile == ProfileMLX }

// Notified handles a CNP.
func (d *DCQCN) Notified(now clock.Time) {
	d.Tick(now)
	first := !d.begun
	d.begun = true
	if !d.active {
		d.active = true
		d.alphaAt = now.Add(d.p.RTT)
	}
	if first && d.p.RateOnFirstCNP > 0 {
		d.rate = min(max(uint64(d.p.RateOnFirstCNP), uint64(d.p.MinRate))<<rateBits, d.line())
		d.target = d.rate
	}
	d.seen = d.periodic() && !first
	switch {
	case d.cutAt != clock.Never:
		d.owes = true // the rate was cut in this monitor period
	default:
		d.cut(now)
	}
	if !d.periodic() {
		d.alpha = d.grown()
		d.alphaAt = now.Add(d.p.RTT)
	}
}

// cut lowers the rate by alpha/2 (with GD 11), and begins fast recovery.
func (d *DCQCN) cut(now clock.Time) {
	if d.p.ClampTarget != 0 || d.p.ClampTargetATI != 0 && d.timeStage > 0 {
		d.target = d.rate
	}
	hi, lo := bits.Mul64(d.rate, d.alpha)
	shift := uint(alphaBits + d.p.GD - 10)
	less := min(hi<<(64-shift)|lo>>shift, d.rate-d.rate/100*uint64(d.p.MinDecFac))
	d.rate = max(d.rate-less, min(uint64(d.p.MinRate)<<rateBits, d.line()))
	d.target = max(d.target, d.rate)
	d.timeStage, d.byteStage, d.bytes = 0, 0, 0
	d.timeAt = now.Add(d.p.TimeReset)
	d.owes, d.cutAt = false, clock.Never
	if d.p.MonitorPeriod > 0 {
		d.cutAt = now.Add(d.p.MonitorPeriod)
	}
}

// decayed returns alpha after a period without a CNP, grown after a CNP.
func (d *DCQCN) decayed() uint64 { return d.alpha - d.step() }
func (d *DCQCN) grown() uint64   { return d.alpha - d.step() + uint64(1024-d.p.G)<<(alphaBits-10) }
func (d *DCQCN) step() uint64    { return d.alpha * uint64(1024-d.p.G) / 1024 }

// maxTicks is how many timers one call of Tick handles. A queue pair that was idle for longer, which only the
// smallest steps of increase allow without reaching the line rate, begins again at the line rate.
const maxTicks = 1 << 17

// Tick handles the timers that have expired by now.
func (d *DCQCN) Tick(now clock.Time) {
	for n := 0; d.active; n++ {
		if n == maxTicks {
			d.rate, d.target, d.alpha = d.line(), d.line(), 0
			d.rest()
			return
		}
		at := d.Deadline()
		if at > now {
			return
		}
		switch at {
		case d.alphaAt:
			d.updateAlpha(now)
		case d.cutAt:
			d.cutAt = clock.Never
			if d.owes {
				d.cut(at)
			}
		default:
			d.timeAt = at.Add(d.p.TimeReset)
			d.increase(true)
		}
		if d.rate >= d.line() && d.alpha < alphaRest && !d.seen && !d.owes {
			d.rest()
		}
	}
}

// updateAlpha ends the period of alpha that is due. If the following periods would not change alpha,
// it skips those that end by now.
func (d *DCQCN) updateAlpha(now clock.Time) {
	before := d.alpha
	if d.seen {
		d.alpha = d.grown()
	} else {
		d.alpha = d.decayed()
	}
	d.alphaAt = d.alphaAt.Add(d.p.RTT)
	if late := now.Sub(d.alphaAt); !d.seen && d.alpha == before && late > 0 {
		d.alphaAt = d.alphaAt.Add(late / d.p.RTT * d.p.RTT)
	}
	d.seen = false
}

// increase raises the rate because the timer has expired, or because ByteReset bytes were sent.
func (d *DCQCN) increase(byTimer bool) {
	counts := &d.byteStage
	if byTimer {
		counts = &d.timeStage
	}
	// The paper counts the increase first; HPCC's simulator counts it afterwards.
	if !d.periodic() {
		*counts = saturated(*counts)
	}
	most, least := max(d.timeStage, d.byteStage), min(d.timeStage, d.byteStage)
	if d.p.ByteReset == 0 && d.periodic() {
		least = d.timeStage
	}
	f := uint32(d.p.Threshold)
	switch {
	case most < f:
	case least > f:
		steps := uint64(1)
		if !d.periodic() {
			steps = uint64(least - f + 1)
		}
		d.target += steps * uint64(d.p.HAIRate) << rateBits
	default:
		d.target += uint64(d.p.AIRate) << rateBits
	}
	if d.periodic() {
		*counts = saturated(*counts)
	}
	d.target = min(d.target, d.line())
	d.rate = min((d.rate+d.target+1)/2, d.line())
}

// saturated returns the next value of a stage. The bound keeps the step of hyper increase below 2^64.
func saturated(stage uint32) uint32 { return min(stage+1, 1<<12-2) }

// Sent adds the bytes of a packet to the byte counter.
func (d *DCQCN) Sent(_ clock.Time, n int) {
	if !d.active || d.p.ByteReset == 0 {
		return
	}
	for d.bytes += int64(n); d.bytes >= d.p.ByteReset; d.bytes -= d.p.ByteReset {
		d.increase(false)
	}
}

func (*DCQCN) Acked(clock.Time, Ack) {}
func (*DCQCN) Lost(clock.Time, Loss) {}

// Deadline returns when the next timer expires.
func (d *DCQCN) Deadline() clock.Time {
	return clock.Min(d.alphaAt, clock.Min(d.cutAt, d.timeAt))
}

// Limit returns the rate. DCQCN does not limit the bytes in flight.
func (d *DCQCN) Limit() (int64, int) { return int64(min(d.rate, d.line()) >> rateBits), 0 }

// State implements Shower.
func (d *DCQCN) State() State {
	rate, _ := d.Limit()
	return State{
		Rate: rate, Target: int64(min(d.target, d.line()) >> rateBits), Alpha: float64(d.alpha) / (1 << alphaBits),
		TimeStage: d.timeStage, ByteStage: d.byteStage, Active: d.active,
	}
}
