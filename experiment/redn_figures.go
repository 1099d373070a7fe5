package experiment

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/rdmalab/rdmalab/experiment/papers"
)

// rednFigures measures tables and figures of the paper RedN.
var rednFigures = Experiment{
	Name:   "redn-figures",
	Short:  "tables and figures of the paper RedN, programs made of work requests, beside the authors' numbers",
	Figure: "RedN: RDMA is Turing complete, we just did not know it yet (NSDI 2022)",
	Lists: func() map[string][]string {
		return map[string][]string{"Figures": titles(redn), "Choices": rednChoices}
	},
	Examples: []string{"--figures 10,ratios --out figures"},
	Sim:      "2 min", Rack: "4 min, with --quick 2 min", Target: "programs; GETs of nictable (figures 14 to 16) go to the metadata host instead", Cost: "connectx5",
	New: func() Body {
		return &figuresBody{all: redn, choices: rednChoices, onRack: &figuresBody{all: rednChainsOnRack, choices: rednRackChoices}}
	},
}

// Times that processes take. rednTrip, rednServe and rednWake are for panels "with programs";
// rednBare and rednWake are for panels "verbs alone", where clients take no time.
const (
	// rednTrip is an input: the time of the client's program for a round trip, which is the part of
	// the published 5.7 µs of Table 5 that NICs and link do not take.
	rednTrip = 1970 * time.Nanosecond
	// rednServe is the time of the server's process for a request: as long as the client's program
	// takes for an answer.
	rednServe = rednTrip
	// rednWake is the time from an event until the process that slept runs: interrupt, wake-up and
	// switch of processes.
	rednWake = 8 * time.Microsecond
	// rednBare is the time of the server's process in panels "verbs alone".
	rednBare = 800 * time.Nanosecond
)

// rednChoices lists the assumptions of the model where the paper does not say enough, and its
// simplifications.
var rednChoices = []string{
	"a program sees a received message 0.46 us after it has arrived, as late as an answer to a READ",
	"panel \"verbs alone\": the client's program takes no time but for posts and polls; the server's process takes 0.8 us",
	"panel \"with programs\": the client's program takes 1.97 us a round trip: a lookup of 64 B takes 5.7 us, as in Table 5",
	"panel \"with programs\": the server's process takes 1.97 us for a request, and wakes up 8 us after an event",
	"the NIC has 8 units, and each queue belongs to one: those of different units do not wait for each other",
	"a packet from a NIC to itself takes 0.17 us, half of the 0.34 us that a READ spends in the NICs and not on the link",
	"PCIe's bandwidth has no limit",
	"a client that looks a key up by READs reads six buckets of 16 bytes, as FaRM does, and then the value",
}

func redn(quick bool) []figure {
	return []figure{rednUnits(quick), rednCosts(), rednVerbs(), rednOrder(quick), rednRates(), rednLookup(quick), rednRatios(), rednSecond(quick), rednRate(), rednTails(), rednWalk(quick), rednEntries(), rednMemcached(quick), rednWriters(quick), rednCrash(), rednOnNIC()}
}

func (o *outcome) chainMean() float64   { return o.chain.Mean.Seconds() * 1e6 }
func (o *outcome) chainMedian() float64 { return o.chain.Median.Seconds() * 1e6 }
func (o *outcome) chainP99() float64    { return o.chain.P99.Seconds() * 1e6 }

// rednPanel is a panel of a figure: its name, and the times that its loads take in processes, which
// are the fields Trip, Serve and Wake of RedN.
type rednPanel struct {
	name              string
	trip, serve, wake time.Duration
}

var rednPanels = []rednPanel{{"verbs alone", 0, rednBare, rednWake}, {"with programs", rednTrip, rednServe, rednWake}}

// rednWays are the ways to look a key up, with their names in tables.
var rednWays = []struct{ way, name string }{
	{WayIdeal, "READ of the value"}, {WayNIC, "RedN"}, {WayRecycled, "RedN, recycled"}, {WayReads, "one-sided"}, {WayPolling, "two-sided, polling"}, {WayEvents, "two-sided, events"},
}

var rednSizes = []string{"64", "256", "1024", "4096", "16384", "65536"}

func rednLookup(quick bool) figure {
	f := figure{
		data: papers.MustLoad("redn/fig10"), key: "10", title: "time to look up a key that is in its first bucket, by bytes of the value", format: "%.2f",
		why: []string{
			"a READ of 64 KB takes 7.5 us here, of which the link has 5.5; one pass over PCIe of 126 Gb/s at each host, behind each other, would make it 15.8; " +
				"the authors have 15.4",
		},
	}
	for p, w := range pairs(rednPanels, rednWays) {
		for _, x := range few(rednSizes, quick) {
			theirs := math.NaN()
			if p.trip > 0 {
				theirs = f.at("", w.way, x)
			}
			f.add(figureCell{
				panel: p.name, series: w.name, x: x, theirs: theirs, value: (*outcome).chainMean,
				load: RedN{Kind: ChainLookup, Way: w.way, Bytes: int(number(x)), Trip: p.trip, Serve: p.serve, Wake: p.wake},
			})
		}
	}
	return f
}

// rednLargest measures loads with several lengths of values or, if Kind is ChainList, with each
// place of the key in the list (RedN.N, 1 to 8). It measures each load by the two ways Way and Of.
// Its outcome is the largest ratio of the typical time by Way to that by Of.
type rednLargest struct {
	Kind, Way, Of     string
	Trip, Serve, Wake time.Duration
	Few               bool
}

func (l rednLargest) label() string   { return fmt.Sprintf("RedN %s: %s ÷ %s", l.Kind, l.Way, l.Of) }
func (l rednLargest) effort() float64 { return 40 }

// loads returns, for each length or N, the load by Way and the load by Of.
func (l rednLargest) loads() (list [][2]RedN) {
	add := func(bytes, n int) {
		a := RedN{Kind: l.Kind, Way: l.Way, Bytes: bytes, N: n, Trip: l.Trip, Serve: l.Serve, Wake: l.Wake, Few: l.Few}
		b := a
		b.Way = l.Of
		list = append(list, [2]RedN{a, b})
	}
	if l.Kind == ChainList {
		for n := 1; n <= 8; n++ {
			add(64, n)
		}
		return list
	}
	for _, x := range rednSizes {
		add(int(number(x)), 0)
	}
	return list
}

func (l rednLargest) measure(ctx context.Context, p Platform) (out outcome, err error) {
	for _, pair := range l.loads() {
		a, err := p.RedN(ctx, pair[0])
		if err != nil {
			return out, err
		}
		b, err := p.RedN(ctx, pair[1])
		if err != nil {
			return out, err
		}
		out.share = max(out.share, float64(a.typical(p))/float64(b.typical(p)))
	}
	return out, nil
}

// rednRatios is the figure of how much longer the baselines take than RedN: the ratios that the
// paper's text gives for figures 10, 13 and 14.
func rednRatios() figure {
	f := figure{
		data: papers.MustLoad("redn/fig10-ratios"), key: "ratios", title: "time of the baselines divided by RedN's in figures 10, 13 and 14: the largest ratio of each",
		format: "%.2f",
		why: []string{
			"two READs take 3.6 us by figure 7, which is less than the 5.7 of RedN by Table 5: the authors' clients take time besides, and more for a READ than for " +
				"an answer. The 1.7 of figure 14 are 9.7 us, 3.0 us of the program for each READ, where Table 5 leaves 2.0 us for an answer",
			"events: 3.8 times 5.7 us are 21.7 us, of which verbs and programs here take 7.1: a wake-up would take 14.6 us",
			"figure 14: Memcached answers over the sockets of VMA, whose stack and copies the model does not have",
		},
	}
	for p, w := range pairs(rednPanels, rednWays[3:]) {
		for _, x := range f.data.Columns {
			l := rednLargest{Kind: ChainLookup, Way: w.way, Of: WayNIC, Trip: p.trip, Serve: p.serve, Wake: p.wake}
			switch x {
			case "13":
				l.Kind = ChainList
			case "14":
				l.Kind = ChainGets
			}
			theirs := f.at("", w.way, x)
			if math.IsNaN(theirs) {
				continue
			}
			f.add(figureCell{panel: p.name, series: w.name, x: x, theirs: theirs, load: l, value: func(o *outcome) float64 { return o.share }})
		}
	}
	return f
}

func rednSecond(quick bool) figure {
	f := figure{
		key: "11", title: "time to look up a key that is in its second bucket, by bytes of the value", x: "bytes of the value", unit: "µs", format: "%.2f",
		why: []string{
			"a probe is a READ, a CAS, a WAIT and an ENABLE, 0.71 us by figure 8, and the time of READ and CAS in the NIC, 0.68 us, partly at the same time; " +
				"the authors' 3 us are more than the 2 us that their NIC takes for a whole lookup in Table 4",
		},
	}
	data := papers.MustLoad("redn/fig11")
	f.add(figureCell{series: "in sequence, second minus first", x: "64", theirs: at(data, "", "sequential", "64", 1), load: rednMore{}, value: (*outcome).chainMean})
	for _, w := range []struct{ way, name string }{
		{WayNIC, "RedN, first bucket"}, {WayParallel, "RedN, parallel"}, {WaySequential, "RedN, in sequence"}, {WayReads, "one-sided"}, {WayPolling, "two-sided, polling"},
	} {
		for _, x := range few(rednSizes, quick) {
			f.add(ours("", w.name, x, RedN{Kind: ChainLookup, Way: w.way, Bytes: int(number(x)), Trip: rednTrip, Serve: rednServe}, (*outcome).chainMean))
		}
	}
	return f
}

// rednMore is a load without parameters. Its outcome is how much longer a sequential lookup takes
// in the second bucket than in the first. The difference is small, so clients always make all of
// their requests (RedN.Few is false).
type rednMore struct{}

func (rednMore) label() string   { return "RedN: second bucket minus first bucket" }
func (rednMore) effort() float64 { return 2 }

func (rednMore) measure(ctx context.Context, p Platform) (outcome, error) {
	second, err := p.RedN(ctx, RedN{Kind: ChainLookup, Way: WaySequential, Bytes: 64})
	if err != nil {
		return outcome{}, err
	}
	first, err := p.RedN(ctx, RedN{Kind: ChainLookup, Way: WayNIC, Bytes: 64})
	more := second.typical(p) - first.typical(p)
	return outcome{chain: &RedNResult{Mean: more, Median: more}}, err
}

func rednRate() figure {
	f := figure{
		data: papers.MustLoad("redn/table4"), key: "table4", title: "lookups per second through one port of the NIC", format: "%.0f",
		why: []string{"the authors do not say how many clients there were; one program here is as fast as their port, and two as their two ports"},
	}
	for _, clients := range []int{1, 2, 8} {
		name, theirs := fmt.Sprintf("%d programs", clients), ""
		if clients == 1 {
			name, theirs = "one program", "nic"
		}
		for _, x := range f.data.Columns {
			f.add(figureCell{
				series: name, their: theirs, x: x, theirs: f.at("", theirs, x),
				load:  RedN{Kind: ChainLookup, Way: WayNIC, Bytes: int(number(x)), Depth: 8, Clients: clients},
				value: func(o *outcome) float64 { return o.chain.Rate / 1e3 },
			})
		}
	}
	return f
}

func rednTails() figure {
	f := figure{
		data: papers.MustLoad("redn/table5"), key: "table5", title: "median and 99th percentile of the time of a lookup", format: "%.2f",
		why:    []string{"nothing varies in the model from one lookup to the next"},
		inputs: []string{"the median of 64 B: the time of the client's program, 1.97 us, is chosen so that it is the authors'"},
	}
	for _, x := range f.data.Columns {
		l := RedN{Kind: ChainLookup, Way: WayNIC, Bytes: int(number(x)), Trip: rednTrip}
		f.add(
			figureCell{series: "median", x: x, theirs: f.at("", "median", x), load: l, value: (*outcome).chainMedian},
			figureCell{series: "99th percentile", x: x, theirs: f.at("", "p99", x), load: l, value: (*outcome).chainP99},
		)
	}
	return f
}

var rednWalks = []struct{ way, name string }{
	{WayNIC, "RedN"}, {WayBreak, "RedN, break"}, {WayRecycled, "RedN, recycled"}, {WayReads, "one-sided"}, {WayPolling, "two-sided, polling"},
}

func rednWalk(quick bool) figure {
	f := figure{
		key: "13", title: "time to find a key in a list of 8 nodes, if it is among the first N nodes", x: "the key is in the first nodes", unit: "µs", format: "%.2f",
		why: []string{
			"the authors: RedN is faster than all baselines, by up to 2 times. Here it is so for READs; a process of the server that polls is faster than RedN from the " +
				"fourth node on, because it walks the list in its own memory in next to no time",
		},
	}
	for p, w := range pairs(rednPanels, rednWalks) {
		for _, x := range few([]string{"1", "2", "3", "4", "5", "6", "7", "8"}, quick) {
			f.add(ours(p.name, w.name, x,
				RedN{Kind: ChainList, Way: w.way, Bytes: 64, N: int(number(x)), Trip: p.trip, Serve: p.serve}, (*outcome).chainMean))
		}
	}
	return f
}

func rednEntries() figure {
	f := figure{
		data: papers.MustLoad("redn/fig13"), key: "entries", format: "%.1f",
		title: "work requests of the server's NIC for a search of figure 13; the authors' are of all their experiments",
	}
	for w, x := range pairs(rednWalks[:3], []string{"1", "2", "4", "8"}) {
		f.add(figureCell{
			series: w.name, x: x, theirs: f.at("", w.way, x), value: func(o *outcome) float64 { return o.chain.Entries },
			load: RedN{Kind: ChainList, Way: w.way, Bytes: 64, N: int(number(x)), Trip: rednTrip, Serve: rednServe},
		})
	}
	return f
}
