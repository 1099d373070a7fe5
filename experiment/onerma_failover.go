package experiment

import (
	"fmt"
	"math"
	"time"
)

// SoloFailover is a kind of OneRMA: GETs of clients of the service kvcs, while the NIC of one of
// its replicas dies.
const SoloFailover = "failover"

// FailoverBin is the length of the time span that one entry of Failover.Bins covers.
const FailoverBin = 20 * time.Microsecond

// Failover is the outcome of SoloFailover: GETs grouped by the time at which they began, in bins of
// FailoverBin around the failure.
type Failover struct {
	// Before is the number of entries of Bins for GETs that began before the failure.
	Before int
	Bins   []FailoverGETs
	// Steady is the time from the failure to the end of the last slow GET, in round trips. A slow GET
	// takes more than 10 % longer than the longest GET in the last third of the measurement. A GET
	// that fails ends the measurement with its error.
	Steady float64
}

// FailoverGETs are the GETs that began in a bin: how many there were in a run, and quantiles of their
// times in round trips.
type FailoverGETs struct{ Count, Median, P99, Max float64 }

func oneRMAFailover(quick bool) figure {
	f := figure{
		key: "fig9", title: "time of GETs, by the time at which they begin; the NIC of one of three replicas dies at 0", x: "us since the failure", unit: "RTT, GETs", format: "%.2f",
		why: []string{
			"the authors: the latency of the survivors is steady in less than 100 us (20 RTT), and there is no unavailability",
			"a READ of the dead replica takes the time-out of 4 RTT; the clients of a host tell each other",
		},
	}
	l := OneRMA{Kind: SoloFailover, Hosts: pick(quick, 3, 6), First: 15, Span: 300 * time.Microsecond}
	const before = 3
	for i := range before + int(l.Span/FailoverBin) {
		x := fmt.Sprint((i - before) * int(FailoverBin/time.Microsecond))
		cell := func(series string, value func(*FailoverGETs) float64) figureCell {
			return figureCell{series: series, x: x, theirs: math.NaN(), load: l, value: func(o *outcome) float64 {
				if o.solo.Failover == nil || i >= len(o.solo.Failover.Bins) {
					return math.NaN()
				}
				return value(&o.solo.Failover.Bins[i])
			}}
		}
		f.add(
			cell("median, RTT", func(g *FailoverGETs) float64 { return g.Median }), cell("99th percentile, RTT", func(g *FailoverGETs) float64 { return g.P99 }),
			cell("longest, RTT", func(g *FailoverGETs) float64 { return g.Max }), cell("GETs in 20 us", func(g *FailoverGETs) float64 { return g.Count }),
		)
	}
	return f
}
