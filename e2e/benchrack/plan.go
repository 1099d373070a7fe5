package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/store/kv"
)

// rack is a rack file and the measures that run on it.
type rack struct {
	name     string
	file     string
	measures []measure
}

// measure is one command and the figure that it prints.
type measure struct {
	name string
	// args are the arguments of rdmalab.
	args []string
	// server is the command of the other end, which runs at the same time and ends with the first
	// one; nil means that there is none.
	server []string
	unit   string // in benchstat's notation
	// base is the name of a measure of the same rack. The ratio to it is computed from the values
	// of the same round; "" means none.
	base string
	// read reads the value from the command's JSON.
	read func([]byte) (float64, error)
}

// Rack files with two hosts, so that only the measured path uses the processors.
const (
	hosts = `hosts:
  - {name: ms0, role: memory}
  - {name: cn0, role: compute}
`
	singleFrames = `hosts:
  - {name: ms0, role: memory, gso: off}
  - {name: cn0, role: compute, gso: off}
`
	tracks = `switch:
  program: swordbox
  rules: [{id: t, server: ms0, action: track}]
`
	moves = `switch:
  program: swordbox
  rules: [{id: m, server: ms0, action: move}]
`
	// memory precedes the hosts of a rack with memory links. Raw frames cross the veth pairs there,
	// too.
	memory = "cable: memory\n"
	// realtime precedes the hosts of a rack whose daemons have real-time priority.
	realtime = "priority: realtime\n"
	// compact precedes the hosts of a rack whose NICs and switch are in one process.
	compact = "daemons: shared\n"
	stores  = `hosts:
  - {name: md0, role: metadata}
  - {name: "ms[0-1]", role: memory}
  - {name: "cn[0-3]", role: compute}
`
)

// racks lists the racks in the order of a round.
var racks = []rack{
	{"default", hosts, paths},
	{"track", tracks + hosts, paths},
	{"move", moves + hosts, paths},
	{"single", singleFrames, paths},
	{"single-track", tracks + singleFrames, paths},
	{"single-move", moves + singleFrames, paths},
	{"memory", memory + hosts, paths},
	{"memory-track", memory + tracks + hosts, paths},
	{"memory-move", memory + moves + hosts, paths},
	{"memory-single", memory + singleFrames, paths},
	{"realtime", realtime + hosts, paths},
	{"realtime-memory", realtime + memory + hosts, paths},
	{"compact", compact + hosts, paths},
	{"compact-track", compact + tracks + hosts, paths},
	{"compact-move", compact + moves + hosts, paths},
	{"verbs", hosts, programs()},
	{"compact-verbs", compact + hosts, programs()},
	{"clover", stores, ycsb("clover")},
	{"memory-clover", memory + stores, ycsb("clover")},
	{"compact-clover", compact + stores, ycsb("clover")},
	{"sherman", stores, ycsb("sherman")},
	{"memory-sherman", memory + stores, ycsb("sherman")},
	{"compact-sherman", compact + stores, ycsb("sherman")},
}

// paths measures the path between two hosts.
var paths = []measure{
	{name: "raw_8", args: perfArgs("raw_bw", "--size", "8", "--iters", "200000"), unit: "msgs/s", read: messages},
	{name: "write_8", args: perfArgs("write_bw", "--size", "8", "--duration", "1"), unit: "msgs/s", read: messages, base: "raw_8"},
	{name: "cas_16", args: perfArgs("atomic_bw", "--type", "cas", "--tx-depth", "16", "--duration", "1"), unit: "msgs/s", read: messages, base: "raw_8"},
	{name: "raw_4k", args: perfArgs("raw_bw", "--size", "4096", "--iters", "100000"), unit: "B/s", read: volume},
	{name: "write_64k", args: perfArgs("write_bw", "--size", "64KiB", "--duration", "1"), unit: "B/s", read: volume, base: "raw_4k"},
	{name: "read_64k", args: perfArgs("read_bw", "--size", "64KiB", "--duration", "1"), unit: "B/s", read: volume, base: "raw_4k"},
	{name: "raw_lat", args: perfArgs("raw_lat", "--size", "8", "--iters", "20000"), unit: "sec/op", read: median},
	{name: "read_lat", args: perfArgs("read_lat", "--size", "8", "--iters", "20000"), unit: "sec/op", read: median, base: "raw_lat"},
	{name: "cas_lat", args: perfArgs("atomic_lat", "--type", "cas", "--iters", "20000"), unit: "sec/op", read: median, base: "raw_lat"},
}

func perfArgs(test string, flags ...string) []string {
	return append([]string{"perf", test, "--from", "cn0", "--to", "ms0", "-q", "-o", "json"}, flags...)
}

// ycsb measures a store with 64 clients.
func ycsb(store string) []measure {
	args := func(workload string) []string {
		return []string{"run", "ycsb", "--store", store, "--workload", workload, "--clients", "64", "--duration", "3s", "-q", "-o", "json"}
	}
	return []measure{
		{name: "ycsb_c", args: args("c"), unit: "ops/s", read: throughput},
		{name: "ycsb_a", args: args("a"), unit: "ops/s", read: throughput},
	}
}

var errNoFigure = errors.New("the result has no such figure")

func messages(b []byte) (float64, error) {
	bw, err := bandwidth(b)
	return bw.MsgRate * 1e6, err
}

func volume(b []byte) (float64, error) {
	bw, err := bandwidth(b)
	return bw.Average * (1 << 20), err
}

func bandwidth(b []byte) (perf.Bandwidth, error) {
	var res perf.Result
	if err := json.Unmarshal(b, &res); err != nil {
		return perf.Bandwidth{}, err
	}
	if res.BW == nil {
		return perf.Bandwidth{}, errNoFigure
	}
	return *res.BW, nil
}

func median(b []byte) (float64, error) {
	var res perf.Result
	if err := json.Unmarshal(b, &res); err != nil {
		return 0, err
	}
	if res.Lat == nil {
		return 0, errNoFigure
	}
	return res.Lat.Typical / 1e6, nil
}

func throughput(b []byte) (float64, error) {
	var res kv.Summary
	if err := json.Unmarshal(b, &res); err != nil {
		return 0, err
	}
	if res.Failed > 0 || res.Wrong > 0 {
		return 0, fmt.Errorf("%d operations failed and %d had a wrong result: %s", res.Failed, res.Wrong, res.FirstError)
	}
	if res.Ops == 0 {
		return 0, errNoFigure
	}
	return res.Throughput, nil
}
