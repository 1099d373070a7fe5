package scenario

import "time"

// switchLane is XORed with the seed of a run, for the sequence of random numbers that decides about
// crashes of the switch (see deathLane).
const switchLane = 0x5c0ff << 32

// theSwitch names the switch as the victim of a fault.
const theSwitch = "the switch"

// drawSwitch draws whether the switch crashes, at any time, or about the time of another crash. A
// crash loses all packets in flight and separates all hosts. The switch may be down for longer than
// the lease of the master, which then takes all memory servers for dead.
func (p *tablePlan) drawSwitch(d *draw) {
	if d.chance(0.7) {
		return
	}
	for range d.between(1, 2) {
		x := trialFault{
			what: trialSwitchDies, victim: theSwitch, after: d.between(1, max(1, p.clients*p.rounds*3/4)),
			late: d.span(0, 30*time.Microsecond), down: d.span(time.Millisecond, 900*time.Millisecond),
		}
		if len(p.faults) > 0 && d.chance(0.6) {
			other := one(d, p.faults...)
			x.after, x.late = other.after, other.late+d.span(0, max(time.Millisecond, 3*p.rule))
		}
		p.faults = append(p.faults, x)
	}
	p.cut = true
}
