package experiment

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/experiment/papers"
	"github.com/rdmalab/rdmalab/store/kv"
)

var fuseeFigures = Experiment{
	Name:     "fusee-figures",
	Short:    "the figures of the FUSEE paper, each number beside the authors'",
	Figure:   "FUSEE: figures 10 to 19 and 21; of figure 20 it prints the authors' numbers",
	Examples: []string{"--figures 13 --out figures"},
	Lists: func() map[string][]string {
		return map[string][]string{"Figures": titles(fusee), "Choices": fuseeChoices}
	},
	Sim: "15 min with two processors, with --quick 3 min", Cost: "connectx3",
	New: func() Body { return &figuresBody{all: fusee, choices: fuseeChoices} },
}

// fuseeChoices lists the assumptions of the model where the paper does not say enough, and the
// sizes that are smaller here so that measurements take less time.
var fuseeChoices = []string{
	"5,000 keys, of which the most popular gets 10.9 % of the operations; the paper has 100,000 keys, and 8.3 %",
	"all clients but those that join in figure 21 know all slots from the beginning; the paper's learn them within seconds",
	"a client has one operation in flight; the paper's clients have one for each of an unknown number of coroutines",
	"FUSEE's clients take time only for posts and polls; Clover's clients take what the authors of SwordBox measured",
	"Clover's metadata server has 12 threads, as in the SwordBox paper; in FUSEE's paper it has 8 cores",
}

// The authors' setting, except for the number of keys: 128 clients on 16 machines, 2 memory
// servers. fuseePair is the length of a key with its value, keyBytes that of a key.
const (
	fuseeKeys     = 5000
	fuseeZipf     = 0.99
	fuseeClients  = 128
	fuseeMachines = 16
	fuseePair     = 1024
	keyBytes      = 8
)

// Reasons why several figures differ from the authors', for figure.why.
const (
	whyIndex = "with one replica of the index all buckets are on server 0, and the authors spread them over both servers: at 128 clients the " +
		"link of server 0 is full while that of server 1 has room (figure links)"
	whyFewClients = "with few clients an operation of ours takes as long as its round trips; the authors' 16 clients do 1.27 Mops in their figure 13 and " +
		"3.09 in their figure 21, for the same load: in figure 13 something other than the network slows them down"
)

// fuseeLoad is a load in the authors' setting.
func fuseeLoad(clients int, w kv.Workload, quick bool) Fusee {
	l := Fusee{
		Clients: clients, Workload: w, Keys: fuseeKeys, Zipf: fuseeZipf, Value: fuseePair - keyBytes, Machines: fuseeMachines,
		Servers: 2, Replicas: 2, IndexReplicas: 1,
	}
	if quick {
		l.Warm, l.Run = 100*time.Microsecond, 300*time.Microsecond
	}
	return l
}

func ycsb(letter string) kv.Workload {
	w, err := kv.FindWorkload(letter)
	if err != nil {
		panic("experiment: " + err.Error())
	}
	return w
}

func single(operation string) (w kv.Workload, kind kv.Kind) {
	w = kv.Workload{Name: operation}
	switch operation {
	case "SEARCH":
		w.Read, kind = 1, kv.KindRead
	case "UPDATE":
		w.Update, kind = 1, kv.KindUpdate
	case "INSERT":
		w.Insert, kind = 1, kv.KindInsert
	case "DELETE":
		w.Delete, kind = 1, kv.KindDelete
	}
	return w, kind
}

// fuseeSingle is a load of one operation of the microbenchmark, in which each client has its own
// keys.
func fuseeSingle(clients int, w kv.Workload, quick bool) Fusee {
	l := fuseeLoad(clients, w, quick)
	l.Own, l.Zipf = true, 0
	return l
}

var operations = []string{"INSERT", "UPDATE", "SEARCH", "DELETE"}

// cloverBeside is the load on Clover in the figures of the FUSEE paper that compare FUSEE with
// Clover.
func cloverBeside(clients int, updates float64, quick bool) Clover {
	l := Clover{
		Clients: clients, Writes: updates, Keys: fuseeKeys, Zipf: fuseeZipf, Value: fuseePair - nodeOverhead, Servers: 2, Pool: 1 << 16,
		Switch: Switch{LineRate: true},
	}
	l.pace(quick)
	return l
}

// Names of series in our figures.
const (
	seriesFusee  = "FUSEE"
	seriesClover = "Clover"
	seriesPDPM   = "pDPM-Direct"
)

// fuseeData has the name that each series has in the data files.
var fuseeData = map[string]string{seriesFusee: "fusee", seriesClover: "clover", seriesPDPM: "pdpm"}

func fusee(quick bool) []figure {
	return []figure{
		fuseeLatency(quick), fuseeMicro(quick), fuseeSizes(quick), fuseeScale(quick), fuseeServers(quick), fuseeMix(quick), fuseeThreshold(quick),
		fuseeAllocation(quick), fuseeReplicas(quick), fuseeMedian(quick), fuseeCrash(), fuseeElastic(), fuseeLinks(quick),
		fuseeSwitch(quick),
	}
}

// latencyAt returns the function that reads a percentile of a kind of operation in microseconds: NaN
// if no such operation was counted.
func latencyAt(kind kv.Kind, percentile float64) func(*outcome) float64 {
	return func(o *outcome) float64 {
		if took := o.store.Percentile(kind, percentile); took > 0 {
			return float64(took) / float64(time.Microsecond)
		}
		return math.NaN()
	}
}

func fuseeLatency(quick bool) figure {
	f := figure{
		data: papers.MustLoad("fusee/fig10"), key: "10", title: "latency of one client by percentile",
		why: []string{"the NIC of the model is a ConnectX-5 except for its rates, and the program takes no time", "the INSERT of ours has one round trip more: it marks its object as valid"},
	}
	for _, op := range operations {
		w, kind := single(op)
		for series, p := range pairs([]string{seriesFusee, seriesClover, seriesPDPM}, f.data.Columns) {
			c := figureCell{panel: op, series: series, their: series, x: p, theirs: f.at(op, fuseeData[series], p)}
			switch {
			case series == seriesFusee:
				c.load, c.value = fuseeSingle(1, w, quick), latencyAt(kind, number(p))
			case series == seriesClover && (kind == kv.KindRead || kind == kv.KindUpdate):
				c.load, c.value = cloverBeside(1, 100*w.Update, quick), latencyAt(kind, number(p))
			case math.IsNaN(c.theirs):
				continue
			}
			f.add(c)
		}
	}
	return f
}

func fuseeMicro(quick bool) figure {
	f := figure{
		data: papers.MustLoad("fusee/fig11"), key: "11", title: "throughput of the microbenchmark, 128 clients", base: seriesClover,
		why: []string{whyIndex, "an INSERT of ours marks its object as valid, one round trip and two WRITEs more"},
	}
	for series, op := range pairs([]string{seriesFusee, seriesClover, seriesPDPM}, f.data.Columns) {
		w, kind := single(op)
		c := figureCell{series: series, their: series, x: op, theirs: f.at("", fuseeData[series], op), value: (*outcome).mops}
		switch {
		case series == seriesFusee:
			c.load = fuseeSingle(fuseeClients, w, quick || kind == kv.KindDelete) // all keys are deleted after half a millisecond
		case series == seriesClover && (kind == kv.KindRead || kind == kv.KindUpdate):
			l := cloverBeside(fuseeClients, 100*w.Update, quick)
			l.Zipf = 0
			c.load = l
		case math.IsNaN(c.theirs):
			continue
		}
		f.add(c)
	}
	return f
}

func fuseeSizes(quick bool) figure {
	f := figure{data: papers.MustLoad("fusee/fig12"), key: "12", title: "throughput by the size of a key with its value, 128 clients", why: []string{whyIndex}}
	for panel, size := range pairs([]string{"A", "C"}, f.data.Columns) {
		l := fuseeLoad(fuseeClients, ycsb(panel), quick)
		l.Value = int(number(size)) - keyBytes
		f.add(figureCell{panel: "YCSB-" + panel, series: seriesFusee, their: seriesFusee, x: size, theirs: f.at(panel, "fusee", size), load: l, value: (*outcome).mops})
	}
	return f
}

// fuseeBeside appends the cells of column x of a panel. key is the name of the panel in the data
// file. own is the load of FUSEE. others is the load of Clover; nil means that Clover is not
// measured. pDPM-Direct is never measured: its cells have only the authors' numbers.
func (f *figure) fuseeBeside(panel, key, x string, own Fusee, others *Clover) {
	for _, series := range []string{seriesFusee, seriesClover, seriesPDPM} {
		c := figureCell{panel: panel, series: series, their: series, x: x, theirs: f.at(key, fuseeData[series], x), value: (*outcome).mops}
		switch {
		case series == seriesFusee:
			c.load = own
		case series == seriesClover && others != nil:
			c.load = *others
		}
		f.add(c)
	}
}

func fuseeScale(quick bool) figure {
	f := figure{
		data: papers.MustLoad("fusee/fig13"), key: "13", title: "throughput of YCSB by clients, 2 memory servers", base: seriesClover,
		why: []string{whyFewClients, whyIndex},
	}
	for _, panel := range []string{"A", "B", "C", "D"} {
		w := ycsb(panel)
		for _, clients := range fuseeColumns(quick) {
			n := int(number(clients))
			var beside *Clover
			if w.Insert == 0 {
				l := cloverBeside(n, 100*w.Update, quick)
				beside = &l
			}
			f.fuseeBeside("YCSB-"+panel, panel, clients, fuseeLoad(n, w, quick), beside)
		}
	}
	return f
}

// fuseeLinks is a figure of the rates, in Gbit/s, at which the memory servers send in the runs of
// YCSB A and C for Figure 13. The authors give no such numbers.
func fuseeLinks(quick bool) figure {
	f := figure{key: "links", title: "rate at which each of the 2 memory servers sends, without overhead of the link", x: "clients", unit: "Gbit/s"}
	for _, panel := range []string{"A", "C"} {
		for server := range 2 {
			for _, clients := range fuseeColumns(quick) {
				f.add(ours("YCSB-"+panel, fmt.Sprintf("server %d", server), clients,
					fuseeLoad(int(number(clients)), ycsb(panel), quick), func(o *outcome) float64 { return o.store.Links[server] * 8 / 1e9 }))
			}
		}
	}
	return f
}

// fuseeColumns are the numbers of clients that are measured for Figure 13.
func fuseeColumns(quick bool) []string {
	return pick(quick, []string{"8", "64", "128"}, []string{"8", "16", "32", "64", "96", "128"})
}

// fuseeSwitch is a figure that the paper does not have: FUSEE with a switch that only forwards, or
// that knows the words of the index. Such a switch replaces each CAS on a slot by a WRITE if the CAS
// will succeed; the server or the switch answers the other CASes. In one series the switch forwards
// and each client has its own keys. No CAS fails there, so a client always wins by Rule 1 of FUSEE's
// protocol: all backups have its value (see package snapshot).
func fuseeSwitch(quick bool) figure {
	f := figure{key: "switch", title: "rate, round trips and latency of UPDATEs of 100 keys; a switch replaces the CASes on slots by WRITEs", x: "clients", unit: "see panel"}
	columns := pick(quick, []string{"1", "16"}, []string{"1", "4", "16", "64"})
	for _, panel := range []namedValue{
		{"Mops", (*outcome).mops},
		{"round trips of an UPDATE", func(o *outcome) float64 { return o.store.Summary().RTTsPerOp }},
		{"median of an UPDATE, us", latencyAt(kv.KindUpdate, 50)},
		{"99th percentile, us", latencyAt(kv.KindUpdate, 99)},
	} {
		for _, s := range []struct {
			name string
			box  Switch
			own  bool
		}{
			{"forwards", Switch{}, false},
			{"replaces, server answers losers", Switch{Action: ReplaceAtomics}, false},
			{"replaces, switch answers losers", Switch{Action: ReplaceAtomics, Misses: "switch"}, false},
			{"forwards, no two clients with one key", Switch{}, true},
		} {
			for _, clients := range columns {
				l := fuseeLoad(int(number(clients)), ycsb("W"), quick)
				l.Keys, l.Servers, l.Replicas, l.IndexReplicas, l.Switch, l.Own = 100, 3, 3, 3, s.box, s.own
				f.add(ours(panel.name, s.name, clients, l, panel.value))
			}
		}
	}
	return f
}

func fuseeServers(quick bool) figure {
	f := figure{
		data: papers.MustLoad("fusee/fig14"), key: "14", title: "throughput of YCSB by memory servers, 128 clients", base: seriesClover,
		why: []string{whyIndex, "from 3 servers on the authors' compute hosts are the limit"},
	}
	for _, panel := range []string{"A", "C"} {
		w := ycsb(panel)
		for _, servers := range few(f.data.Columns, quick) {
			own, other := fuseeLoad(fuseeClients, w, quick), cloverBeside(fuseeClients, 100*w.Update, quick)
			own.Servers, other.Servers = int(number(servers)), int(number(servers))
			f.fuseeBeside("YCSB-"+panel, panel, servers, own, &other)
		}
	}
	return f
}

func fuseeMix(quick bool) figure {
	f := figure{
		data: papers.MustLoad("fusee/fig15"), key: "15", title: "throughput by the share of SEARCH in a mix with UPDATE, 128 clients", base: seriesClover,
		why: []string{whyIndex},
	}
	for _, share := range pick(quick, []string{"0", "50", "100"}, []string{"0", "20", "40", "50", "60", "80", "100"}) {
		percent := 100 - number(share)
		w := updates(percent)
		switch share {
		case "50":
			w = ycsb("a") // the same load as in other figures, so it is measured once
		case "100":
			w = ycsb("c")
		}
		other := cloverBeside(fuseeClients, percent, quick)
		f.fuseeBeside("", "", share, fuseeLoad(fuseeClients, w, quick), &other)
	}
	return f
}

// fuseeThreshold is Figure 16 of the FUSEE paper: throughput by the threshold of the cache. It adds
// a series without a cache.
func fuseeThreshold(quick bool) figure {
	f := figure{
		data: papers.MustLoad("fusee/fig16"), key: "16", title: "throughput of YCSB-A by the threshold of the cache (how often a cached slot may be wrong), 128 clients", format: "%.4g",
		why: []string{
			whyIndex, "a GET of ours that finds another slot reads the new object in the next round trip, whether it has read the old one or not",
			"a run has some 40 operations of each client, so few keys are used often enough that thresholds up to 0.3 decide differently",
		},
	}
	for _, x := range pick(quick, []string{"0.0", "0.1", "1.0"}, []string{"0.0", "0.1", "0.3", "0.5", "0.7", "0.9", "1.0"}) {
		l := fuseeLoad(fuseeClients, ycsb("A"), quick)
		switch l.Threshold = number(x); x {
		case "0.0":
			l.Threshold = noThreshold
		case "0.1":
			l.Threshold = 0 // the default: the same load as in other figures, so it is measured once
		}
		f.add(figureCell{series: seriesFusee, their: seriesFusee, x: x, theirs: f.at("", "fusee", x), load: l, value: (*outcome).mops})
		l.NoCache, l.Threshold = true, 0
		f.add(figureCell{series: "FUSEE without cache", their: "none", x: x, theirs: math.NaN(), load: l, value: (*outcome).mops})
	}
	return f
}

// noThreshold stands for the figure's threshold 0.0, because 0 selects the default of 0.1. A client
// that has found a cached slot out of date once exceeds this threshold; from then on it reads the
// slot first.
const noThreshold = 1e-9

// fuseeAllocation is Figure 17 of the FUSEE paper: throughput with two ways to allocate memory for
// objects. The way in which memory servers allocate each object is not measured.
func fuseeAllocation(quick bool) figure {
	f := figure{data: papers.MustLoad("fusee/fig17"), key: "17", title: "throughput by who allocates memory for objects (clients or servers), 128 clients", why: []string{whyIndex}}
	for _, x := range f.data.Columns {
		f.add(
			figureCell{series: "two-level", their: "two-level", x: x, theirs: f.at("", "two-level", x), load: fuseeLoad(fuseeClients, ycsb(x), quick), value: (*outcome).mops},
			figureCell{series: "server alone", their: "server alone", x: x, theirs: f.at("", "server alone", x)})
	}
	return f
}

func fuseeFactors(quick bool) []string {
	return pick(quick, []string{"1", "3"}, []string{"1", "2", "3"})
}

func fuseeReplicas(quick bool) figure {
	f := figure{
		data: papers.MustLoad("fusee/fig18"), key: "18", title: "throughput of YCSB by the replication factor, 128 clients, 5 memory servers",
		x:   "replicas of objects and index",
		why: []string{"reads go to the primaries of slots, which are on server 0 here, and on all servers of the authors"},
	}
	for panel, x := range pairs([]string{"A", "B", "C", "D"}, fuseeFactors(quick)) {
		l := fuseeLoad(fuseeClients, ycsb(panel), quick)
		l.Servers, l.Replicas, l.IndexReplicas = 5, int(number(x)), int(number(x))
		f.add(figureCell{panel: "YCSB-" + panel, series: seriesFusee, their: seriesFusee, x: x, theirs: f.at("", panel, x), load: l, value: (*outcome).mops})
	}
	return f
}

// fuseeMedian is Figure 19 of the FUSEE paper: median latency by the replication factor. The
// authors' FUSEE-CR, which executes CAS on one replica after the other, is not measured.
func fuseeMedian(quick bool) figure {
	f := figure{
		data: papers.MustLoad("fusee/fig19"), key: "19", title: "median latency of one client by the replication factor, 5 memory servers",
		x:   "replicas of objects and index",
		why: []string{"round trips are the paper's (docs/papers/fusee.md), and theirs take 4 to 5 us each, ours 2 to 3"},
	}
	for _, op := range operations {
		w, kind := single(op)
		for _, s := range []struct{ name, data string }{{seriesFusee, "fusee"}, {"without cache", "nc"}, {"one replica after the other", "cr"}} {
			for _, x := range fuseeFactors(quick) {
				l := fuseeSingle(1, w, quick)
				l.Servers, l.Replicas, l.IndexReplicas, l.NoCache = 5, int(number(x)), int(number(x)), s.data == "nc"
				c := figureCell{panel: op, series: s.name, their: s.name, x: x, theirs: f.at(op, s.data, x), value: latencyAt(kind, 50)}
				if s.data != "cr" {
					c.load = l
				}
				f.add(c)
			}
		}
	}
	return f
}

// fuseeCrash is Figure 20 of the FUSEE paper: throughput while a memory server crashes. It is not
// measured, because no platform has such a load.
func fuseeCrash() figure {
	f := figure{data: papers.MustLoad("fusee/fig20"), key: "20", title: "throughput of YCSB-C while one of two memory servers crashes; not measured"}
	for _, x := range f.data.Columns {
		f.add(figureCell{series: seriesFusee, their: seriesFusee, x: x, theirs: f.at("", "fusee", x)})
	}
	return f
}

// The steps of Figure 21: of 30 steps, the guests (additional clients) join at the beginning of the
// 11th and leave after the 20th.
const (
	elasticSteps = 30
	elasticJoin  = 10
	elasticLeave = 19
	elasticStep  = 100 * time.Microsecond
)

// fuseeElastic is Figure 21 of the FUSEE paper: throughput while clients join and leave. A step of
// the authors is half a second.
func fuseeElastic() figure {
	f := figure{
		data: papers.MustLoad("fusee/fig21"), key: "21", title: fmt.Sprintf("throughput of YCSB-C while 16 clients join 16 others and leave; steps of %v, in the paper 0.5 s", elasticStep),
		x:   "step",
		why: []string{"a GET takes the authors 5.2 us; the throughput doubles for both", "new clients remember no slots: their first GET of a key takes two round trips"},
	}
	l := fuseeLoad(16, ycsb("C"), false)
	l.Steps, l.Visit, l.Run = elasticSteps, Visit{Guests: 16, Join: elasticJoin, Leave: elasticLeave}, elasticSteps*elasticStep
	for i, x := range f.data.Columns {
		if i%2 == 1 && !slices.Contains([]int{9, 11, 19, 21}, i) {
			continue // every other step is enough where nothing changes
		}
		f.add(figureCell{
			series: seriesFusee, their: seriesFusee, x: x, theirs: f.at("", "fusee", x), load: l,
			value: func(o *outcome) float64 { return o.store.Steps[i] / 1e6 },
		})
	}
	return f
}
