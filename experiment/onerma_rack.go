package experiment

import (
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/experiment/papers"
)

// Kinds of OneRMA that only a rack has.
const (
	// SoloIdle is one READ of 64 bytes at a time, without other load.
	SoloIdle = "idle"
	// SoloCrash is three runs of GETs by Hosts clients of the service kvcs: before a crash of the
	// NIC of a replica, with the crash, and after it.
	SoloCrash = "crash"
	// SoloKeys replaces the key of a region by REKEY and READs with the new key, again and again.
	// With WayRoCE it makes a new connection and READs over it instead.
	SoloKeys = "keys"
)

// OneRMARack has the results that only a rack has. All times except RTT and FileRTT are
// in round trips, as multiples of RTT.
type OneRMARack struct {
	// RTT is the measured round trip: the median time of READs of 64 bytes by 1RMA, measured just
	// before the load begins. FileRTT is the rtt of the rack file, on which congestion control and
	// timeouts are based.
	RTT, FileRTT time.Duration
	// InTrip is the mean number of operations that end in the time of a round trip.
	InTrip float64
	// NewAndRead is the median time of a round of SoloKeys: a new key or connection, and a READ.
	// OneRMAResult.Median is the median time of its first part, without the READ.
	NewAndRead float64
	// Phases has the GETs of the three runs of SoloCrash: before the crash, with it, and after it.
	Phases [3]PhaseGETs
	// Only loads in slow motion, whose RTT is FileRTT, have the fields below. Hosts is how many
	// hosts made READs in SoloRandom, each from Peers others. Window is the solicitation window of
	// the rack file in bytes.
	Hosts, Peers int
	Window       int64
}

// PhaseGETs has quantiles and the maximum of the times of a run's GETs, in round trips, and how
// many GETs failed.
type PhaseGETs struct{ Median, P99, Max, Failed float64 }

type oneRMABody struct{ figuresBody }

func (b *oneRMABody) Flags(fs *pflag.FlagSet) {
	b.figuresBody.Flags(fs)
	fs.Lookup("figures").Usage = "figures to measure, separated by commas (default: all; on a rack all in slow motion, or all others)"
}

// Check selects figures of oneRMA in the simulator, and of oneRMAOnRack on a rack. Without
// --figures, a rack whose file is for slow motion has the figures in slow motion (oneRMASlow), and
// any other rack has all other figures. If a figure is not in slow motion, Check also selects
// oneRMATrip, because the round trip that it shows is the unit of that figure.
func (b *oneRMABody) Check(at Place) error {
	if at.On != OnRack {
		return b.figuresBody.Check(at)
	}
	b.all, b.choices = oneRMAOnRack, slices.Concat(oneRMARackChoices, oneRMASlowChoices)
	if err := b.figuresBody.Check(at); err != nil {
		return err
	}
	slow := func(f figure) bool { return slices.Contains(slowKeys, f.key) }
	if len(b.keys) == 0 {
		b.list = slices.DeleteFunc(b.list, func(f figure) bool { return slow(f) != at.Slow })
	}
	unit := oneRMATrip()
	if needs := slices.ContainsFunc(b.list, func(f figure) bool { return !slow(f) }); needs && b.list[0].key != unit.key {
		b.list = slices.Insert(b.list, 0, unit)
	}
	return nil
}

// oneRMARackChoices says how figures on a rack differ from those of the paper.
var oneRMARackChoices = []string{
	"a round trip is the median of READs of 64 bytes by 1RMA, measured alone before each load; it is the unit of all times",
	"hosts share the processors of this machine, so load is clients or operations in flight, and not a share of a line rate",
	"RoCEv2: the NICs of the same hosts on the same links; in figures 12 and 13 with a connection for each of the two loads",
}

func oneRMAOnRack(quick bool) []figure {
	return slices.Concat([]figure{
		oneRMATrip(), oneRMARackGets(quick), oneRMACrash(), oneRMADepth(quick), oneRMARackBeside(quick), oneRMARackMixed(quick), oneRMAKeys(),
	}, oneRMASlow(quick))
}

// oneRMATrip is the figure with the measured round trip, the unit of the other figures on a rack.
func oneRMATrip() figure {
	f := figure{
		key: "rtt", title: "round trip: time of READs of 64 bytes, one at a time, without other load", x: "time", unit: "us", format: "%.1f",
		why: []string{"the round trip of the authors' testbed is 5 us; the median of 1RMA is the unit of the other figures"},
	}
	for _, s := range bothWays {
		l := OneRMA{Kind: SoloIdle, Way: s.way}
		us := func(v func(*OneRMAResult) float64) func(*outcome) float64 {
			return func(o *outcome) float64 { return v(o.solo) * o.solo.Rack.RTT.Seconds() * 1e6 }
		}
		f.add(
			ours("", s.name, panelMedian, l, us(func(r *OneRMAResult) float64 { return r.Median })),
			ours("", s.name, panelP99, l, us(func(r *OneRMAResult) float64 { return r.P99 })),
		)
	}
	return f
}

// inTrip returns how many operations have ended in each round trip, on average.
func (o *outcome) inTrip() float64 { return o.solo.Rack.InTrip }

func oneRMARackGets(quick bool) figure {
	f := figure{
		key: "fig8", title: "time of GETs of the store kvcs by 1RMA, and of the store nictable by RoCEv2 READs, by clients", x: "clients", unit: "RTT", format: "%.2f",
		base: seriesSolo,
		why: []string{
			"the authors show curves for 10 nodes: 1RMA is faster than a software NIC at all loads",
			"a GET of kvcs is a READ of two buckets in one of the replicas, and one of a cell; nictable has one server",
		},
	}
	for _, n := range few([]string{"1", "2", "4", "8", "16", "32"}, quick) {
		l := OneRMA{Kind: SoloGets, Hosts: int(number(n))}
		f.add(bothWays.times(l, n, panelMedian, panelP99)...)
		f.add(bothWays.values(l, "GETs in a round trip", n, (*outcome).inTrip)...)
	}
	return f
}

func oneRMACrash() figure {
	f := figure{
		key: "fig9", title: "time of GETs of 8 clients of the store kvcs in three runs; in the second, the NIC of a replica crashes", x: "run", unit: "RTT, GETs", format: "%.1f",
		why: []string{
			"the authors: the latency of the survivors is steady in less than 100 us (20 RTT), and there is no unavailability",
			"a READ of the dead replica takes the time-out of the rack file, by default 20 ms: 5 of its rtt, many measured round trips",
			"the longest GET also has the time slices of other processes: the run before the crash says how much that is",
		},
	}
	l := OneRMA{Kind: SoloCrash, Hosts: 8}
	for i, x := range []string{"before", "crash", "after"} {
		cell := func(series string, value func(*PhaseGETs) float64) figureCell {
			return ours("", series, x, l, func(o *outcome) float64 { return value(&o.solo.Rack.Phases[i]) })
		}
		f.add(
			cell("median, RTT", func(g *PhaseGETs) float64 { return g.Median }), cell("99th percentile, RTT", func(g *PhaseGETs) float64 { return g.P99 }),
			cell("longest, RTT", func(g *PhaseGETs) float64 { return g.Max }), cell("GETs that fail", func(g *PhaseGETs) float64 { return g.Failed }),
			ours("", "longest, rtt of the rack file", x, l, func(o *outcome) float64 {
				r := o.solo.Rack
				return r.Phases[i].Max * float64(r.RTT) / float64(r.FileRTT)
			}),
		)
	}
	return f
}

func oneRMADepth(quick bool) figure {
	f := figure{
		key: "fig11", title: "operations of 4 KB of one client that end within a round trip, by operations in flight", x: "in flight", unit: "operations in a round trip", format: "%.2f",
		why: []string{
			"the authors show that the rate grows with the slots, and that WRITEs saturate earlier than READs",
			"a connection of RoCEv2 has at most 16 READs in flight",
		},
	}
	for n, s := range pairs(few([]string{"1", "2", "4", "8", "16", "32", "64"}, quick), bothWays) {
		l := OneRMA{Kind: SoloSlots, Way: s.way, Slots: int(number(n))}
		f.add(ours("", s.name+" READ", n, l, (*outcome).inTrip))
		l.Write = true
		f.add(ours("", s.name+" WRITE", n, l, (*outcome).inTrip))
	}
	return f
}

func oneRMARackBeside(quick bool) figure {
	f := figure{
		key: "fig12", title: "time of READs of 64 bytes beside other READs between the same hosts, by the bytes of the other READs", x: "bytes of the other READs", unit: "RTT", format: "%.2f",
		why: []string{
			"the authors: a small operation waits for about one chunk of 4 KB and not for the transfer, as with RDMA",
			"both loads have the same processors, so also a READ that waits for no other one takes longer beside them",
		},
	}
	for _, large := range few([]string{"0", "4096", "65536", "262144", "1048576"}, quick) {
		f.add(bothWays.times(OneRMA{Kind: SoloBeside, Large: int(number(large)), Slots: 1}, large, panelMedian, panelP99)...)
	}
	return f
}

// oneRMARackMixed is figure 13 of the 1RMA paper in a smaller shape: one READ of 4 KB at a time
// beside READs of 200 KB.
func oneRMARackMixed(quick bool) figure {
	f := figure{
		key: "fig13", title: "time of READs of 4 KB beside READs of 200 KB between the same hosts, by READs of 200 KB in flight", x: "READs of 200 KB in flight", unit: "RTT", format: "%.2f",
		why: []string{
			"the authors: with 85 % of the operations of 4 KB and half the load, times of RDMA are 6 to 10 times as long",
			"here the client always has that many READs of 200 KB in flight, and there are two hosts",
		},
	}
	for _, n := range few([]string{"1", "2", "4", "8"}, quick) {
		f.add(bothWays.times(OneRMA{Kind: SoloMixed, Large: 200 << 10, Slots: int(number(n))}, n, panelMedian, panelP99)...)
	}
	return f
}

func oneRMAKeys() figure {
	f := figure{
		data: papers.MustLoad("onerma/fig14"), scale: float64(time.Microsecond) / float64(OneRMARTT), key: "fig14", title: "time to get a new key for a region by REKEY, and a new connection of RoCEv2",
		unit: "RTT", format: "%.2f",
		why: []string{
			"the authors' times are 1 us and 2 ms of hardware and system calls, here divided by their round trip of 5 us",
			"a REKEY has four hops, and here also two ways between program and daemon; then the owner hands out the next keys",
			"a new connection is a queue pair, a handshake and its states; it goes to memory that stays registered",
		},
	}
	for _, s := range []struct{ way, name, data string }{{WaySolo, "REKEY", "REKEY"}, {WayRoCE, "new connection", "RDMA"}} {
		l := OneRMA{Kind: SoloKeys, Way: s.way}
		f.add(
			figureCell{series: "alone", their: "authors", x: s.name, theirs: f.at("time", "us", s.data), load: l, value: (*outcome).soloMedian},
			ours("", "alone, 99th percentile", s.name, l, (*outcome).soloP99),
			ours("", "and a READ", s.name, l, func(o *outcome) float64 { return o.solo.Rack.NewAndRead }),
		)
	}
	return f
}
