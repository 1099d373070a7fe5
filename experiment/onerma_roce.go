package experiment

import (
	"context"
	"time"

	"github.com/rdmalab/rdmalab/experiment/papers"
)

// The names of series with 1RMA and with RoCEv2 on the same links.
const (
	seriesSolo = "1RMA"
	seriesRoCE = "RoCEv2"
	seriesPFC  = "RoCEv2, PFC"
)

// ways are ways by which figures measure the same load, with the names of their series.
type ways []struct{ way, name string }

// bothWays are those that racks have, too, and simWays those of the simulator.
var (
	bothWays = ways{{WaySolo, seriesSolo}, {WayRoCE, seriesRoCE}}
	simWays  = ways{{WaySolo, seriesSolo}, {WayRoCE, seriesRoCE}, {WayPFC, seriesPFC}}
)

// times returns cells for one value x of a figure in two panels: the median and the 99th percentile, each
// with a series for each way. median and p99 are the names of the panels.
func (list ways) times(l OneRMA, x, median, p99 string) (cells []figureCell) {
	for _, s := range list {
		l.Way = s.way
		cells = append(cells, ours(median, s.name, x, l, (*outcome).soloMedian), ours(p99, s.name, x, l, (*outcome).soloP99))
	}
	return cells
}

// values returns cells for one value x of a figure: a panel with a series for each way.
func (list ways) values(l OneRMA, panel, x string, value func(*outcome) float64) (cells []figureCell) {
	for _, s := range list {
		l.Way = s.way
		cells = append(cells, ours(panel, s.name, x, l, value))
	}
	return cells
}

// Names that figures usually give to the two panels that ways.times fills.
const (
	panelMedian = "median"
	panelP99    = "99th percentile"
)

func oneRMAGets(quick bool) figure {
	f := figure{
		key: "fig8", title: "time of GETs of 7 hosts from a store with 3 servers, by load of the servers' links", x: "load, % of the line rate", unit: "RTT", format: "%.2f",
		base: seriesSolo,
		why: []string{
			"the authors show curves for 10 nodes: 1RMA is faster than a software NIC at all loads",
			"a GET is a READ of 512 bytes and then one of 2,024 bytes; the clients of RoCEv2 make the same READs, without the store",
		},
	}
	for _, load := range few([]string{"10", "20", "30", "40", "50", "60", "70", "80", "90", "95"}, quick) {
		l := OneRMA{Kind: SoloGets, Hosts: 7, First: 15, Load: number(load) / 100, Span: oneRMASpan(quick, time.Millisecond/2)}
		f.add(simWays.times(l, load, panelMedian, panelP99)...)
	}
	return f
}

func oneRMAWrites(quick bool) figure {
	f := figure{
		key: "fig11a", title: "time and goodput of READs and WRITEs of 4 KB of random hosts, by load", x: "load, % of the line rate", unit: "RTT, %", format: "%.2f", logY: true,
		why: []string{
			"the authors show curves: WRITEs saturate earlier than READs",
			"a WRITE of 1RMA has four hops, and holds the window of its target for two of them while other WRITEs wait",
		},
	}
	series := []struct {
		way, name string
		write     bool
	}{{WaySolo, "1RMA READ", false}, {WaySolo, "1RMA WRITE", true}, {WayRoCE, "RoCEv2 READ", false}, {WayRoCE, "RoCEv2 WRITE", true}}
	for load, s := range pairs(few([]string{"10", "30", "50", "60", "70", "80", "90"}, quick), series) {
		l := OneRMA{Kind: SoloRandom, Way: s.way, Write: s.write, Hosts: 10, First: 15, Load: number(load) / 100, Span: oneRMASpan(quick, time.Millisecond)}
		f.add(ours("median, RTT", s.name, load, l, (*outcome).soloMedian), ours("99th percentile, RTT", s.name, load, l, (*outcome).soloP99))
		f.add(ours("goodput, % of the line rate", s.name, load, l, (*outcome).soloGoodput))
	}
	return f
}

func oneRMASlots(quick bool) figure {
	f := figure{
		key: "fig11b", title: "goodput of a client with a READ of 4 KB in each of its command slots, by slots", x: "slots", unit: "% of the line rate", format: "%.1f",
		why: []string{"the authors show that the rate grows with the slots up to the line rate; a connection of RoCEv2 has at most 16 READs in flight"},
	}
	for _, n := range few([]string{"1", "2", "4", "8", "12", "16", "32", "64"}, quick) {
		f.add(simWays.values(OneRMA{Kind: SoloSlots, Slots: int(number(n)), Span: oneRMASpan(quick, time.Millisecond)}, "", n, (*outcome).soloGoodput)...)
	}
	return f
}

func oneRMAMixed(quick bool) figure {
	const ratio, at50 = "RoCEv2 / 1RMA, 4 KB", "50"
	f := figure{
		data: papers.MustLoad("onerma/fig13"), key: "fig13", title: "time of READs from random hosts, 85 % of 4 KB and the others of 200 KB, by load",
		unit: "RTT", format: "%.2f", logY: true,
		why: []string{
			"the authors' 6 to 10 are for operations of a share that they do not name, with RDMA at 40 Gbit/s; here both have the same links",
			"a connection answers READs in order, so a READ of 4 KB waits for all 50 frames of a READ of 200 KB before it; here the line rate sends them in 17 us",
			"the executor gives each transfer to a host one operation in turn; large transfers pay for it",
		},
	}
	l := OneRMA{Kind: SoloMixed, Hosts: pick(quick, 5, 10), First: 15, Span: oneRMASpan(quick, time.Millisecond)}
	for _, load := range few([]string{"10", "30", at50, "60", "70", "80"}, quick) {
		l.Load = number(load) / 100
		f.add(simWays.times(l, load, "4 KB, median", "4 KB, 99th percentile")...)
		f.add(simWays.values(l, "200 KB, median", load, func(o *outcome) float64 { return o.solo.LargeMedian })...)
	}
	l.Load = number(at50) / 100
	for _, s := range []namedValue{{panelMedian, (*outcome).soloMedian}, {panelP99, (*outcome).soloP99}} {
		f.add(figureCell{panel: ratio, series: s.name, their: "authors, at least", x: at50, theirs: f.at("ratio", "least", at50), load: oneRMAGain{l}, value: s.value})
	}
	f.add(figureCell{panel: ratio, series: "authors, at most", x: at50, theirs: f.at("ratio", "most", at50)})
	return f
}

// oneRMAGain is a load that is measured by 1RMA and by RoCEv2. Its outcome has the times of RoCEv2
// divided by those of 1RMA.
type oneRMAGain struct{ OneRMA }

func (l oneRMAGain) label() string { return l.OneRMA.label() + ", and by RoCEv2" }

func (l oneRMAGain) measure(ctx context.Context, p Platform) (outcome, error) {
	solo, err := p.OneRMA(ctx, l.OneRMA)
	if err != nil {
		return outcome{}, err
	}
	l.Way = WayRoCE
	roce, err := p.OneRMA(ctx, l.OneRMA)
	return outcome{solo: &OneRMAResult{Median: roce.Median / solo.Median, P99: roce.P99 / solo.P99}}, err
}

func oneRMARekey(quick bool) figure {
	f := figure{
		data: papers.MustLoad("onerma/fig14"), key: "fig14", title: "how long READs of two regions are delayed when one region gets a new key every 50 round trips",
		unit: "RTT, us", format: "%.2f", logY: true,
		why: []string{
			"the time here is how much later a READ of a client ends at most: the refusal takes a round trip, as the paper allows. In the region table itself a REKEY takes no time",
			"no READ fails twice; at half of the line rate and more, READs that are tried again queue up, and the longest delay is 1.2 to 1.3 round trips",
			"the model has no driver: the authors' 27 us, and most of their 2 ms, are the time of system calls that replace the key, or make the queue pair",
			"with RoCEv2 the refusal breaks the connection: READs of the other region on it fail as well",
		},
	}
	for _, s := range []struct{ way, name, data string }{
		{WaySolo, "REKEY, keys handed out", "REKEY"}, {WayAsks, "REKEY, key asked for", ""}, {WayDriver, "driver, keys handed out", "driver"}, {WayRoCE, "RoCEv2, reconnect", "RDMA"},
	} {
		l := OneRMA{Kind: SoloRekey, Way: s.way, First: 15, Load: 0.3, Span: oneRMASpan(quick, 5*time.Millisecond)}
		cell := func(panel, series, their string, value func(r *Rekey) float64) {
			f.add(figureCell{
				panel: panel, series: series, their: "authors", x: s.name, theirs: f.at("time", their, s.data), load: l,
				value: func(o *outcome) float64 { return value(o.solo.Rekey) },
			})
		}
		for i, region := range []string{"its region", "other region"} {
			us, rtt := "", ""
			if i == 0 {
				us, rtt = "us", "RTT"
			}
			cell(region, "longest delay, us", us, func(r *Rekey) float64 { return r.Added[i] * float64(OneRMARTT) / float64(time.Microsecond) })
			cell(region, "longest delay, RTT", rtt, func(r *Rekey) float64 { return r.Added[i] })
			cell(region, "READs that fail for a key", "", func(r *Rekey) float64 { return r.Failed[i] })
		}
	}
	return f
}
