package experiment

import (
	"fmt"
	"math"
	"time"
)

// classes describes the fields of a load of SoloClasses.
func (l *OneRMA) classes() string {
	if l.Class == "" {
		return ""
	}
	return fmt.Sprintf(", queues %s, DCQCN %v, alone %v", l.Class, l.Marked, l.Only)
}

// oneRMAClasses has 1RMA beside RoCEv2 on one link, which the authors leave open: they give 1RMA a
// traffic class of its own.
func oneRMAClasses(quick bool) figure {
	f := figure{
		key: "classes", title: "a link on which one host reads by 1RMA and another writes by RoCEv2, by the queues of the switch", x: "queues", unit: "% of the line rate; RTT", format: "%.2f",
		why: []string{
			"the authors have not measured it (section 6): they assign 1RMA a traffic class of its own",
			"in one queue, WRITEs without congestion control keep a megabyte waiting (16 of 64 KB); 1RMA sees the delay and gives way",
		},
		inputs: []string{"kmin 100 KB, kmax 400 KB and pmax 10 % of the marking queue, and equal weights, are choices"},
	}
	span := oneRMASpan(quick, 10*time.Millisecond)
	for _, marked := range []bool{false, true} {
		roce := map[bool]string{false: "RoCEv2 without congestion control", true: "RoCEv2 with DCQCN"}[marked]
		for _, c := range []struct {
			name, class string
			only        bool
			way         string
		}{
			{"1RMA alone", ClassShared, true, WaySolo},
			{"RoCEv2 alone", ClassShared, false, WayRoCE},
			{"one queue", ClassShared, false, WaySolo},
			{"own, weights", ClassWeights, false, WaySolo},
			{"own, strict", ClassStrict, false, WaySolo},
		} {
			l := OneRMA{Kind: SoloClasses, Way: c.way, Class: c.class, Only: c.only, Marked: marked, First: 15, Span: span}
			if c.way != WayRoCE {
				f.add(ours("goodput, %", "1RMA beside "+roce, c.name, l, (*outcome).soloGoodput))
				f.add(ours("READ of 64 bytes by 1RMA, median, RTT", "beside "+roce, c.name, l, orNone((*outcome).soloMedian)), ours("99th percentile, RTT", "beside "+roce, c.name, l, orNone((*outcome).soloP99)))
			}
			if !c.only {
				f.add(ours("goodput, %", roce, c.name, l, func(o *outcome) float64 { return 100 * o.solo.RoCE }))
			}
		}
	}
	return f
}

// orNone returns a value that is NaN where v is 0: no READ has ended.
func orNone(v func(*outcome) float64) func(*outcome) float64 {
	return func(o *outcome) float64 {
		if x := v(o); x != 0 {
			return x
		}
		return math.NaN()
	}
}
