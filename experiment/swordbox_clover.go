package experiment

import (
	"math"
	"strconv"
	"time"

	"github.com/rdmalab/rdmalab/experiment/papers"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Reasons why several figures differ from the authors', for figure.why.
const (
	whyHardened = "hardened steering goes only to nodes whose append the server has acknowledged: appends and READs of a key wait in " +
		"the switch for the append in flight, which absorbs the appends"
	whyUnsteered = "without steering, throughput is what retries leave: it depends on how fast a client that lost a race learns of the " +
		"winner, which differs between the two clients' programs"
	whyMetadata = "at 100 % writes, steered, the authors' metadata server limits their throughput; ours gets one request for some 48 writes"
)

func throughputFigure(quick bool) figure {
	f := figure{
		data: papers.MustLoad("swordbox/fig11"), scale: 1e-6, key: "11", title: "Clover's throughput by threads",
		unit: "Mops", logY: true, base: unsteered, gains: []string{"280"},
		why: []string{whyUnsteered, whyHardened, whyMetadata},
		inputs: []string{
			"0 % writes: the cost file has the time of a GET in the client's program from the column 7, and the NIC's total of READs limits the last columns",
			"100 % writes, steered: the cost file has the time of a PUT in the client's program from the column 7, and the time of a call of the metadata " +
				"server from the authors' last columns. Here a call reports up to 48 writes, and the metadata server does not limit them",
		},
	}
	for writes, k := range pairs([]string{"0", "5", "50", "100"}, steeringKinds()) {
		if writes == "0" && k.data == "write" {
			continue // there are no appends to steer
		}
		for _, threads := range few(f.data.Columns, quick) {
			f.add(figureCell{
				panel: writesPanel(writes), series: k.name, their: k.their, x: threads, theirs: f.at(writes, k.data, threads),
				load: cloverLoad(int(number(threads)), number(writes), k.box, quick), value: (*outcome).mops,
			})
		}
	}
	return f
}

// firstTriesFigure is Figure 5 of the SwordBox paper: the share of appends that succeed. The
// authors' counters grow by 4 for each append that succeeds, and by 3 for each attempt. So their
// number is successes / 4 over attempts / 3.
func firstTriesFigure(quick bool) figure {
	data := papers.MustLoad("swordbox/fig5")
	f := figure{
		key: "5", title: "share of Clover's appends that succeed, 50 % writes", x: data.X, unit: "%", format: "%.1f",
		why: []string{whyUnsteered, "the authors' number is successes ÷ 4 over attempts ÷ 3 of two counters"},
	}
	for panel, k := range pairs([]string{"successes of attempts", "successes at the first attempt"}, steeringKinds()) {
		if k.data == "write" {
			continue
		}
		for _, clients := range few(data.Columns, quick) {
			c := figureCell{
				panel: panel, series: k.name, their: k.their, x: clients, theirs: math.NaN(),
				load: cloverLoad(int(number(clients)), 50, k.box, quick), value: (*outcome).firstTries,
			}
			if panel == "successes of attempts" {
				c.value = (*outcome).successes
				if k.data == "none" {
					c.theirs = at(data, "", "successes", clients, 1.0/4) / at(data, "", "attempts", clients, 1.0/3) * 100
				}
			}
			f.add(c)
		}
	}
	return f
}

// successes is the percentage of attempts to append that succeeded; firstTries is the percentage of
// appends that needed one attempt.
func (o *outcome) successes() float64 {
	n := float64(o.store.Writes())
	return 100 * n / max(1, n+float64(o.store.Retries))
}

func (o *outcome) firstTries() float64 { return 100 * o.store.FirstTryShare() }

// metadataFigure has the rates of requests to the metadata server in the runs for Figure 11. The
// authors give no such numbers.
func metadataFigure(quick bool) figure {
	f := figure{
		data: papers.MustLoad("swordbox/fig11"), key: "metadata", title: "rate of calls of Clover's metadata server, and of headers that it reads, 100 % writes",
		unit: "millions a second", logY: true,
	}
	for _, c := range []namedValue{
		{"calls of clients", func(o *outcome) float64 { return o.store.MetaCalls / 1e6 }},
		{"headers of nodes read", func(o *outcome) float64 { return o.store.MetaHeaders / 1e6 }},
	} {
		for _, k := range steeringKinds() {
			if k.data == "write" {
				continue
			}
			for _, threads := range few(f.data.Columns, quick) {
				f.add(figureCell{
					panel: c.name, series: k.name, their: k.their, x: threads, theirs: math.NaN(),
					load: cloverLoad(int(number(threads)), 100, k.box, quick), value: c.value,
				})
			}
		}
	}
	return f
}

func bytesFigure(quick bool) figure {
	data := papers.MustLoad("swordbox/fig12")
	f := figure{
		key: "12", title: "bytes of an operation of Clover, 280 threads", x: "% writes", unit: "bytes/op", logY: true, format: "%.0f",
		why: append([]string{"ours are bytes that the switch receives, headers included"}, data.Notes...),
	}
	for k, writes := range pairs(steeringKinds(), []string{"5", "50", "100"}) {
		f.add(figureCell{
			series: k.name, their: k.their, x: writes, theirs: at(data, writes, k.data, "bytes", 1) / at(data, writes, k.data, "operations", 1),
			load: cloverLoad(paperThreads, number(writes), k.box, quick), value: func(o *outcome) float64 { return o.store.BytesPerOp },
		})
	}
	return f
}

func latencyFigure(quick bool) figure {
	f := figure{
		data: papers.MustLoad("swordbox/fig13"), scale: 1e-3, key: "13", title: "99th percentile of Clover's latency, 280 threads", unit: "us", logY: true,
		why: []string{whyUnsteered, whyHardened},
	}
	for _, panel := range []string{"reads", "writes"} {
		kind := kv.KindRead
		if panel == "writes" {
			kind = kv.KindUpdate
		}
		for k, writes := range pairs(steeringKinds(), f.data.Columns) {
			if writes == "0" && panel == "writes" || writes == "100" && panel == "reads" {
				continue
			}
			f.add(figureCell{
				panel: panel, series: k.name, their: k.their, x: writes, theirs: f.at(panel, k.data, writes),
				load:  cloverLoad(paperThreads, number(writes), k.box, quick),
				value: func(o *outcome) float64 { return float64(o.store.Percentile(kind, 99)) / float64(time.Microsecond) },
			})
		}
	}
	return f
}

// hotThreads is the number of threads in Figure 14: 56 on each of 6 machines.
const hotThreads = 336

func hotKeysFigure(quick bool) figure {
	f := figure{
		data: papers.MustLoad("swordbox/fig14"), scale: 1e-6, key: "14", title: "Clover's throughput with a part of the keys steered, Zipf 1.5", unit: "Mops", logY: true,
		why: []string{"the authors' number without steered keys is a third of what their own data of Figure 16 have for the same skew, so " +
			"their factors of 9.5 (8 keys) and 27 (64 keys) have a low base", "the authors do not say the percentage of writes; here it is 50", whyHardened},
	}
	for _, k := range steeringKinds() {
		if k.data != "both" {
			continue
		}
		for _, keys := range few(f.data.Columns, quick) {
			box := k.box
			if box.Hot = int(number(keys)); box.Hot == 0 {
				box = Switch{}
			}
			l := cloverLoad(hotThreads, 50, box, quick)
			l.Zipf = 1.5
			f.add(figureCell{series: k.name, their: k.their, x: keys, theirs: f.at("", "both", keys), load: l, value: (*outcome).mops})
		}
	}
	return f
}

// nodeOverhead is the size of a node in bytes without its value.
const nodeOverhead = 24

func sizeFigure(quick bool) figure {
	f := figure{
		data: papers.MustLoad("swordbox/fig15"), scale: 1e-6, key: "15", title: "Clover's throughput by the size of nodes, 200 threads, 50 % writes",
		unit: "Mops", logY: true, base: unsteered,
		why: []string{whyUnsteered, whyHardened},
	}
	for k, size := range pairs(steeringKinds(), few(f.data.Columns, quick)) {
		l := cloverLoad(200, 50, k.box, quick)
		l.Value = int(number(size)) - nodeOverhead
		f.add(figureCell{series: k.name, their: k.their, x: size, theirs: f.at("", k.data, size), load: l, value: (*outcome).mops})
	}
	return f
}

func skewFigure(quick bool) figure {
	f := figure{
		data: papers.MustLoad("swordbox/fig16"), scale: 1e-6, key: "16", title: "Clover's throughput by the skew of keys, 280 threads, 50 % writes",
		unit: "Mops", logY: true, base: unsteered,
		gains: []string{"0.00", "1.00"}, why: []string{whyUnsteered, whyHardened},
	}
	for k, skew := range pairs(steeringKinds(), few(f.data.Columns, quick)) {
		l := cloverLoad(paperThreads, 50, k.box, quick)
		l.Zipf = number(skew)
		f.add(figureCell{series: k.name, their: k.their, x: skew, theirs: f.at("", k.data, skew), load: l, value: (*outcome).mops})
	}
	return f
}

// updates returns a workload of reads and updates, with the given percentage of updates.
func updates(percent float64) kv.Workload {
	return kv.Workload{Name: strconv.Itoa(int(percent)), Read: 1 - percent/100, Update: percent / 100}
}

// fuseeFigure compares our throughput of FUSEE with the measurement of SwordBox's authors.
func fuseeFigure(quick bool) figure {
	f := figure{
		data: papers.MustLoad("swordbox/fig11-fusee"), scale: 1e-6, key: "11-fusee", title: "FUSEE's throughput by threads", unit: "Mops", logY: true,
		why: []string{"a GET takes 50 us at the authors' 8 threads and 5.3 us at 64, so their few threads wait for something other than the network; " +
			"a GET of ours is one round trip at any number", "the authors do not say how many servers and replicas they used; here it is 2 servers, " +
			"2 replicas of objects and 1 of the index, as in the paper of FUSEE", "at 256 clients the link of server 0 is full, " +
			"which has the whole index here"},
	}
	for _, r := range f.data.Rows {
		percent := number(r.Panel)
		for _, threads := range few(f.data.Columns, quick) {
			f.add(figureCell{
				panel: writesPanel(r.Panel), series: "FUSEE", their: "FUSEE", x: threads, theirs: f.at(r.Panel, r.Series, threads),
				load: Fusee{Clients: int(number(threads)), Keys: paperKeys, Zipf: paperZipf, Workload: updates(percent)}, value: (*outcome).mops,
			})
		}
	}
	return f
}

// shermanFigure compares our throughput of Sherman with the measurement of SwordBox's authors.
func shermanFigure(quick bool) figure {
	f := figure{
		data: papers.MustLoad("swordbox/fig11-sherman"), scale: 1e-6, key: "11-sherman", title: "Sherman's throughput by threads", unit: "Mops", logY: true,
		why: []string{"the authors do not say which options of Sherman they used; ours has locks on the NIC, and hands them over within a machine"},
	}
	for _, r := range f.data.Rows {
		percent := number(r.Panel)
		for _, threads := range few(f.data.Columns, quick) {
			f.add(figureCell{
				panel: writesPanel(r.Panel), series: "Sherman", their: "Sherman", x: threads, theirs: f.at(r.Panel, r.Series, threads),
				load: Sherman{Clients: int(number(threads)), Keys: paperKeys, Zipf: paperZipf, Workload: updates(percent)}, value: (*outcome).mops,
			})
		}
	}
	return f
}
