package experiment

import (
	"math/rand/v2"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/selective"
)

// treeTimeout is the code of the ACK timeout with PFC, 67 ms: a packet that waits behind pauses is not lost.
const treeTimeout = 14

// ccIRN is IRN, go-back-N and RACK over one switch, with and without PFC.
func ccIRN(quick bool) figure {
	f := figure{
		key: "irn", title: "messages at 70 % load: times divided by those of a message alone, and packets sent again", x: "switch", unit: "times the time alone", format: "%.3g",
		why: []string{
			"IRN, abstract: without PFC it is 6 to 83 % better than RoCE (go-back-N) with PFC, over several metrics and settings",
			"with one switch, a pause stops only the NIC of a host, and PFC costs little; in the paper's fat tree it spreads from switch to switch",
		},
	}
	for _, kind := range []selective.Kind{selective.GoBackN, selective.IRN, selective.RACK} {
		for _, pfc := range []bool{true, false} {
			x := pick(pfc, "PFC", "no PFC")
			l := play(ccScene{figure: f.key, algorithm: ccPFC, lossless: pfc, recovery: kind, quick: quick})
			f.add(
				ours("mean", kind.String(), x, l, func(o *outcome) float64 { return o.scene.Slowdown }),
				ours("p99", kind.String(), x, l, func(o *outcome) float64 { return o.scene.P99 }),
				ours("sent again", kind.String(), x, l, func(o *outcome) float64 { return float64(o.scene.Again) }),
				ours("dropped", kind.String(), x, l, func(o *outcome) float64 { return float64(o.scene.Dropped) }),
			)
		}
	}
	return f
}

// ccTree is IRN without PFC and go-back-N with it over leaves and spines, where a pause spreads from switch to switch.
func ccTree(quick bool) figure {
	f := figure{
		key: "irn-tree", title: "messages at 70 % load over four leaves and four spines", x: "switches", unit: "us, frames and packets of the run", format: "%.4g",
		why: []string{
			"IRN, section 4.2: without PFC it is 2.8 to 3.7 times better than RoCE (go-back-N) with PFC, whose queue pairs have",
			"  no window; IRN has one. Go-back-N with IRN's window is shown beside: the gain is that of the window",
		},
	}
	for _, c := range []struct {
		series string
		kind   selective.Kind
		pfc    bool
		window int
	}{
		{"go-back-n", selective.GoBackN, true, 1024},
		{"go-back-n, window", selective.GoBackN, true, BDP},
		{"irn", selective.IRN, true, BDP},
		{"go-back-n", selective.GoBackN, false, 1024},
		{"irn", selective.IRN, false, BDP},
	} {
		x := pick(c.pfc, "PFC", "no PFC")
		l := play(ccScene{figure: f.key, algorithm: ccPFC, lossless: c.pfc, recovery: c.kind, n: c.window, quick: quick})
		f.add(
			ours("mean time, us", c.series, x, l, func(o *outcome) float64 { return float64(o.scene.Mean.Microseconds()) }),
			ours("p99 of the time, us", c.series, x, l, func(o *outcome) float64 { return float64(o.scene.Tail.Microseconds()) }),
			ours("pause frames", c.series, x, l, func(o *outcome) float64 { return float64(o.scene.Pauses) }),
			ours("packets dropped", c.series, x, l, func(o *outcome) float64 { return float64(o.scene.Dropped) }),
			ours("packets sent again", c.series, x, l, func(o *outcome) float64 { return float64(o.scene.Again) }),
		)
	}
	return f
}

// randomMessages returns flows between all pairs of hosts, whose messages come at random times (Poisson)
// so that each host sends at a share of the line rate.
func randomMessages(seed uint64, hosts int, load float64, span time.Duration) (list []SceneFlow) {
	r := rand.New(rand.NewPCG(11, 17+seed))
	sizes := [10]int{1 << 10, 1 << 10, 1 << 10, 1 << 10, 1 << 10, 1 << 10, 32 << 10, 32 << 10, 32 << 10, 1 << 20}
	mean := 0.0
	for _, n := range sizes {
		mean += float64(n) / float64(len(sizes))
	}
	apart := mean * 8 / (load * paperRate) // seconds between two messages of a host
	of := map[[2]int]int{}
	for from := range hosts {
		for at := 0.0; ; {
			if at += r.ExpFloat64() * apart; at >= span.Seconds() {
				break
			}
			to := (from + 1 + r.IntN(hosts-1)) % hosts
			k, ok := of[[2]int{from, to}]
			if !ok {
				k = len(list)
				of[[2]int{from, to}] = k
				list = append(list, SceneFlow{From: from, To: to})
			}
			list[k].Messages = append(list[k].Messages, SceneMessage{time.Duration(at * 1e9), sizes[r.IntN(len(sizes))]})
		}
	}
	return list
}
