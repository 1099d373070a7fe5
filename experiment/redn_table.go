package experiment

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/experiment/papers"
)

// rednGets measures GETs of the store nictable.
var rednGets = Experiment{
	Name:   "redn-gets",
	Short:  "GETs of the store nictable by the server's NIC, by READs and by the server's process, alone and beside writers",
	Figure: "RedN (NSDI 2022): figures 14 and 15",
	Lists: func() map[string][]string {
		return map[string][]string{"Figures": titles(rednTables)}
	},
	Sim: "20 s", Rack: "1 min, with --quick half of it", Cost: "connectx5",
	New: func() Body {
		return &figuresBody{all: rednTables, choices: rednChoices, onRack: &figuresBody{all: rednOnRack}}
	},
}

// rednOnRack lists the figures of rednTables for a rack, without the cells that only the simulator's
// model has, without its inputs, and without the authors' numbers, which are of hardware.
func rednOnRack(quick bool) []figure {
	list := rednTables(quick)
	for i := range list {
		f := &list[i]
		f.why, f.inputs = nil, nil
		f.cells = slices.DeleteFunc(f.cells, func(c figureCell) bool { return c.series == rednServers[3].name })
		for k := range f.cells {
			f.cells[k].theirs = math.NaN()
		}
	}
	return list
}

func rednTables(quick bool) []figure { return []figure{rednMemcached(quick), rednWriters(quick)} }

// rednSockets is an input: the time of the server's process for a request that comes over sockets. It is
// chosen so that a GET of 64 B takes 2.6 times the 5.7 µs of RedN, as in figure 14.
const rednSockets = 9690 * time.Nanosecond

// rednServers are the ways to get a value from nictable. name is the name of the series, data the
// authors' name of it, and serve the time of the server's process for a request.
var rednServers = []struct {
	way, name, data string
	serve           time.Duration
}{
	{WayNIC, "NIC", "nic", rednServe},
	{WayReads, "READs", "reads", rednServe},
	{WayPolling, "process", "", rednServe},
	{WayPolling, "process, sockets", "process", rednSockets},
}

func rednMemcached(quick bool) figure {
	f := figure{
		key: "14", title: "time of a GET of the store nictable, one client, by bytes of the value", x: "bytes of the value", unit: "µs", format: "%.2f",
		why:    []string{"the authors: RedN is up to 1.7 times faster than READs and 2.6 times faster than a process"},
		inputs: []string{"process, sockets: its time for a request, 9.69 us, is chosen so that a GET of 64 B takes 2.6 times the 5.7 us of RedN"},
	}
	for s, x := range pairs(rednServers, few(rednSizes, quick)) {
		f.add(ours("", s.name, x, RedN{Kind: ChainGets, Way: s.way, Bytes: int(number(x)), Trip: rednTrip, Serve: s.serve}, (*outcome).chainMean))
	}
	return f
}

// rednTail is the name of the panel of figure 15 with the 99th percentile of the times of GETs.
const rednTail = "99th percentile"

func rednWriters(quick bool) figure {
	f := figure{
		data: papers.MustLoad("redn/fig15"), key: "15", title: "time of a GET of 64 bytes by one reader, by the number of writing clients", format: "%.2f",
		why: []string{
			"a GET that the process answers waits here for the PUT of each writer and for nothing else; the authors name switches of threads as the reason of theirs",
			"the authors' 35 times RedN are 15 us for each writer, as long as a GET of theirs over sockets",
		},
		inputs: []string{"process, sockets: its time for a request is that of figure 14, chosen for the 2.6 there"},
	}
	for s, x := range pairs(rednServers, few([]string{"0", "1", "2", "4", "8", "16"}, quick)) {
		l := RedN{Kind: ChainGets, Way: s.way, Bytes: 64, N: int(number(x)), Trip: rednTrip, Serve: s.serve}
		f.add(
			ours("mean", s.name, x, l, (*outcome).chainMean),
			figureCell{panel: rednTail, series: s.name, their: s.data, x: x, theirs: f.at(rednTail, s.data, x), load: l, value: (*outcome).chainP99},
		)
	}
	return f
}

func rednCrash() figure {
	f := figure{
		key: "16", title: "share of the GETs that are answered, over time; the process dies at 1 s", x: "time, s", unit: "% of those that begin", format: "%.0f",
		why: []string{
			"the authors: with RedN no GET fails; without it the process is away for 1 s, and needs 1.25 s more for its metadata and hash table",
			"a process of nictable takes over the table that it finds, so it needs no 1.25 s",
		},
		inputs: []string{"how long the process is away: 1 s and 1.25 s are constants"},
	}
	for _, s := range rednServers[:3] {
		for k := range 20 {
			f.add(ours("", s.name, strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.2f", float64(k)/4), "0"), "."),
				RedN{Kind: ChainCrash, Way: s.way, Bytes: 64, Trip: rednTrip, Serve: s.serve}, func(o *outcome) float64 { return o.chain.Steps[k] }))
		}
	}
	return f
}
