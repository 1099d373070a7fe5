package experiment

import (
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/experiment/papers"
)

// The network of the paper's testbed: links of 100 Gbit/s, and a round trip of 5 µs, which crosses
// four links. OneRMALinkDelay is the delay of a link: a quarter of the round trip, minus 250 ns,
// which is about how long a link takes to send the bytes of a frame. A rack in slow motion has the
// same network with all times multiplied by SlowMotion.
const (
	OneRMARTT       = 5 * time.Microsecond
	OneRMARate      = 100_000_000_000
	OneRMALinkDelay = OneRMARTT/4 - 250*time.Nanosecond
)

// SlowMotion returns the number by which the times of the paper's testbed are multiplied on a rack
// with the round trip rtt.
func SlowMotion(rtt time.Duration) float64 { return float64(rtt) / float64(OneRMARTT) }

// SlowRack is the rack file for the figures in slow motion.
const SlowRack = "topo/racks/onerma-slow.yaml"

// slowKinds are the kinds of OneRMA that a rack measures in slow motion (see SlowMotion). The times
// in the fields of such a load are those of the testbed; the rack multiplies them.
var slowKinds = map[string]bool{SoloRandom: true, SoloRamp: true, SoloLocal: true, SoloDemand: true}

// Slow reports whether a rack measures the load in slow motion.
func (l *OneRMA) Slow() bool { return slowKinds[l.Kind] }

// oneRMASlowChoices says what figures in slow motion are.
var oneRMASlowChoices = []string{
	"10, 15 and 16: slow motion. Faults of the links (delay, rate) make a network whose round trip is the rtt of the rack file",
	"there, a link sends 62,500 bytes in a round trip, as in the testbed, and delays a frame by a quarter of the round trip less its bytes",
	"there, the unit is the rtt of the rack file, and not a measured time; the NICs do not know the rate of their links",
}

var slowKeys = []string{"fig10", "fig15", "fig16"}

func oneRMASlow(quick bool) []figure {
	return []figure{oneRMASlowRandom(quick), oneRMASlowRamp(quick), oneRMASlowJitter(quick)}
}

// slowHosts is the number of hosts of figure 10, if the rack has so many.
const slowHosts = 40

func oneRMASlowRandom(quick bool) figure {
	f := figure{
		key: "fig10", title: "slow motion: time of READs of 4 KB from random hosts (Poisson arrivals), by load", x: "load, % of the line rate", unit: "RTT, %", format: "%.2f",
		why: []string{
			"the authors show 40 hosts beside RDMA and a software NIC, as slowdown without numbers: close to RDMA at all loads",
			"here up to 40 compute hosts, with a connection of RoCEv2 to each host that a host reads from",
			"of more than 28 hosts each reads from some others: the kernel has at most 1,024 neighbours in all hosts together",
		},
	}
	for _, load := range []string{"10", "50", "70", "80"} {
		l := OneRMA{Kind: SoloRandom, Hosts: slowHosts, First: 15, Load: number(load) / 100, Span: oneRMASpan(quick, time.Millisecond/2)}
		f.add(bothWays.times(l, load, panelMedian, panelP99)...)
		f.add(bothWays.values(l, "goodput, % of the line rate", load, (*outcome).soloGoodput)...)
		f.add(
			ours("tried again, %", seriesSolo, load, l, (*outcome).soloRetried),
			ours("hosts", "compute hosts", load, l, func(o *outcome) float64 { return float64(o.solo.Rack.Hosts) }),
			ours("hosts", "a host reads from", load, l, func(o *outcome) float64 { return float64(o.solo.Rack.Peers) }),
		)
	}
	return f
}

func oneRMASlowRamp(quick bool) figure {
	f := figure{
		data: papers.MustLoad("onerma/fig15"), key: "fig15", title: "slow motion: round trips until a flow has the line rate, and until a second flow has its fair share",
		format: "%.0f",
		why: []string{
			"the authors' window is 15 at the line rate, and they do not give the first one; the hosts of a rack begin with 64",
			"without the local signal the target is the sum of both, 2 RTT; the authors do not give theirs, nor which flows are 20 times slower",
			fmt.Sprintf("0: not within %d round trips", SlowLongest(quick)),
		},
		inputs: []string{"column 15: the first window is the authors' last one"},
	}
	for _, first := range []string{"15", "64"} {
		f.ramps(first, time.Duration(SlowLongest(quick))*OneRMARTT)
	}
	return f
}

// SlowLongest returns for how many round trips a rack waits for a rate of figure 15.
func SlowLongest(quick bool) int { return pick(quick, 50, 150) }

func oneRMASlowJitter(quick bool) figure {
	f := figure{
		key: "fig16", title: "slow motion: goodput of a client without congestion control, by the jitter of its links",
		x: "largest delay of a frame on a link, % of RTT", unit: "%, KB", format: "%.1f",
		why: []string{
			"the authors give curves: goodput falls with jitter, and less with a larger window; what is shed has mostly waited too long to be dispatched",
			"the window is that of the rack file: figures for several windows need several racks",
		},
	}
	for _, jitter := range few([]string{"0", "10", "25", "50"}, quick) {
		l := OneRMA{
			Kind: SoloDemand, Hosts: 1, Load: 1, Jitter: time.Duration(number(jitter) * float64(OneRMARTT) / 100), Span: oneRMASpan(quick, time.Millisecond/2),
		}
		f.add(
			ours("", "goodput, % of the line rate", jitter, l, (*outcome).soloGoodput), ours("", "shed, DISPATCH_TIMEOUT", jitter, l, (*outcome).soloDispatch),
			ours("", "shed, other", jitter, l, (*outcome).soloShed),
			ours("", "window of the rack file, KB", jitter, l, func(o *outcome) float64 { return float64(o.solo.Rack.Window) / 1024 }),
		)
	}
	return f
}
