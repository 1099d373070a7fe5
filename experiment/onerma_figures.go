package experiment

import (
	"fmt"
	"math"
	"time"

	"github.com/rdmalab/rdmalab/experiment/papers"
)

// oneRMAFigures measures figures of the paper 1RMA.
var oneRMAFigures = Experiment{
	Name:   "onerma-figures",
	Short:  "figures of the paper 1RMA, NICs without connections, each number beside the authors'",
	Figure: "1RMA: Re-envisioning Remote Memory Access for Multi-tenant Datacenters (SIGCOMM 2020)",
	Lists: func() map[string][]string {
		return map[string][]string{"Figures": titles(oneRMA), "OnRack": titles(oneRMAOnRack), "Choices": oneRMAChoices}
	},
	Sim: "1 min with two processors", Rack: "2 min, with --quick 1 min; in slow motion 8 min, with --quick 4 min", Target: "memory of READs, WRITEs and keys; its NIC crashes in figure 9", Cost: "connectx5",
	New: func() Body { return &oneRMABody{figuresBody{all: oneRMA, choices: oneRMAChoices}} },
}

// oneRMAChoices lists the assumptions of the model where the paper does not say enough, and its
// simplifications.
var oneRMAChoices = []string{
	"congestion control aims at delays of RTT / 2 in the client's NIC, 1.5 RTT behind it; windows: 0.01 to 64 operations",
	"the NIC has no PCIe bus: it reads and writes memory at once; encryption takes no time",
	"RoCEv2: same links, NICs that take no time, a connection per pair of hosts, path MTU 4096, 16 READs in flight, no loss",
	"RoCEv2, PFC: as RoCEv2, and the switch pauses a host when 100 KB of its frames wait, until fewer do;",
	"  links count the preamble and gap of frames, too",
	"a RoCEv2 NIC sends one response at a time, even to READs of different connections; hardware interleaves their packets",
	"a link delays a frame by a quarter of the round trip and by the time that its bytes take; the switch drops nothing",
}

func oneRMA(quick bool) []figure {
	return []figure{
		oneRMAGets(quick), oneRMAFailover(quick), oneRMARandom(quick), oneRMAWrites(quick), oneRMASlots(quick), oneRMABeside(quick), oneRMAMixed(quick), oneRMARekey(quick),
		oneRMARamp(quick), oneRMAJitter(quick), oneRMAThreshold(quick), oneRMAClasses(quick),
	}
}

// oneRMASpan returns for how long operations are counted: full, or a fifth of it with --quick.
func oneRMASpan(quick bool, full time.Duration) time.Duration { return pick(quick, full/5, full) }

func oneRMARandom(quick bool) figure {
	f := figure{
		key: "fig10", title: "time of READs of 4 KB from random hosts (Poisson arrivals), by load", x: "load, % of the line rate", unit: "RTT, %", format: "%.2f",
		why: []string{"the authors show 40 hosts beside RDMA and a software NIC, as slowdown without numbers: close to RDMA at all loads"},
	}
	for _, load := range few([]string{"10", "20", "30", "40", "50", "60", "70", "80"}, quick) {
		l := OneRMA{Kind: SoloRandom, Hosts: pick(quick, 10, 40), First: 15, Load: number(load) / 100, Span: oneRMASpan(quick, time.Millisecond)}
		f.add(simWays.times(l, load, panelMedian, panelP99)...)
		f.add(ours("tried again, %", seriesSolo, load, l, (*outcome).soloRetried))
	}
	return f
}

func oneRMABeside(quick bool) figure {
	f := figure{
		key: "fig12", title: "time of READs of 64 bytes, 10,000 a second, beside a transfer between the hosts, by the transfer's bytes", x: "bytes of the transfer", unit: "RTT", format: "%.3f",
		why: []string{"the authors: a small operation waits for about one chunk of 4 KB (0.07 RTT) and not for the transfer, as with RDMA"},
	}
	for _, large := range few([]string{"0", "4096", "65536", "262144", "1048576"}, quick) {
		l := OneRMA{Kind: SoloBeside, Large: int(number(large)), First: 15, Span: oneRMASpan(quick, 20*time.Millisecond)}
		f.add(simWays.times(l, large, panelMedian, panelP99)...)
	}
	return f
}

func oneRMARamp(quick bool) figure {
	f := figure{
		data: papers.MustLoad("onerma/fig15"), key: "fig15", title: "round trips until a flow has the line rate, and until a second flow has its fair share",
		format: "%.0f",
		why: []string{
			"the authors' window is 15 at the line rate, and they do not give the first one",
			"by their algorithm a window grows by 0.25 in a round trip, so from 1 to 15 it takes 56; their 8 need a growth of nearly 2",
			"without the local signal the target is the sum of both, 2 RTT; the authors do not give theirs, nor which flows are 20 times slower",
			"0: not within 2,000 round trips",
		},
		inputs: []string{"column 15: the first window is the authors' last one"},
	}
	for _, first := range few([]string{"1", "5", "10", "15"}, quick) {
		f.ramps(first, 0)
	}
	return f
}

// ramps adds the cells of figure 15 for a first congestion window: with congestion control by both
// signals (the delay in the client's NIC, and the delay behind it), and with OneRMA.TotalDelay. The
// third panel is how soon a second process of a host has its share of the host's link (SoloLocal).
// span is OneRMA.Span, which only a rack uses here.
func (f *figure) ramps(first string, span time.Duration) {
	for _, total := range []bool{false, true} {
		name := pick(total, "without the local signal", "both signals")
		l := OneRMA{Kind: SoloRamp, First: number(first), TotalDelay: total, Span: span}
		ramp := func(o *outcome) float64 { return o.solo.Ramp }
		f.add(
			figureCell{panel: "line rate", series: name, their: "1RMA", x: first, theirs: f.at("line rate", name, first), load: l, value: ramp},
			figureCell{panel: "fair share", series: name, their: "1RMA", x: first, theirs: f.at("fair share", name, first), load: l, value: (*outcome).soloFair},
		)
		l.Kind = SoloLocal
		f.add(ours("fair share of a process", name, first, l, (*outcome).soloFair))
	}
}

func oneRMAJitter(quick bool) figure {
	f := figure{
		key: "fig16", title: "goodput of a client without congestion control, by the largest random delay of a frame on its links",
		x: "largest delay of a frame on a link, % of RTT", unit: "%", format: "%.1f",
		why: []string{"the authors give curves: goodput falls with jitter, and less with a larger window; what is shed has mostly waited too long to be dispatched"},
	}
	for kb, jitter := range pairs([]int{48, 64, 96}, few([]string{"0", "10", "25", "50", "75", "100"}, quick)) {
		l := OneRMA{
			Kind: SoloDemand, Hosts: 1, Load: 1, Window: kb << 10, Jitter: time.Duration(number(jitter) * float64(OneRMARTT) / 100), Span: oneRMASpan(quick, 5*time.Millisecond),
		}
		name := fmt.Sprintf("window %d KB", kb)
		f.add(ours("goodput, % of the line rate", name, jitter, l, (*outcome).soloGoodput), ours("shed, DISPATCH_TIMEOUT", name, jitter, l, (*outcome).soloDispatch))
		f.add(ours("shed, otherwise", name, jitter, l, (*outcome).soloShed))
	}
	return f
}

func oneRMAThreshold(quick bool) figure {
	f := figure{
		key: "fig16d", title: "goodput of two clients that both demand a server's whole link, by the bytes of requests that may wait there",
		x: "threshold, KB", unit: "%, RTT", format: "%.2f",
		why: []string{"the authors: above (timeout - RTT - dispatch time-out) x rate, 62.5 KB, goodput collapses; below it more is tried again"},
	}
	for _, kb := range few([]string{"8", "16", "32", "62", "125", "250", "500"}, quick) {
		l := OneRMA{Kind: SoloDemand, Hosts: 2, Load: 1, Window: 1 << 20, Threshold: int(number(kb)) << 10, Span: oneRMASpan(quick, 5*time.Millisecond)}
		f.add(
			ours("", "goodput, % of the line rate", kb, l, (*outcome).soloGoodput),
			ours("", "shed, %", kb, l, (*outcome).soloRetried),
			ours("", "median of OK, RTT", kb, l, func(o *outcome) float64 {
				if o.solo.Goodput == 0 {
					return math.NaN()
				}
				return o.solo.Median
			}),
		)
	}
	return f
}
