package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/store/kv"
)

// rack is a rack file and what is measured on it.
type rack struct {
	name     string
	file     string
	measures []measure
}

// measure is one command and the figure that it prints.
type measure struct {
	name string
	args []string
	unit string // as benchstat knows it
	// base names the measure of the same rack to which the ratio is given, measured in the same
	// round. Empty: none.
	base string
	// read finds the figure in the command's JSON.
	read func([]byte) (float64, error)
}

// Rack files: two hosts, so that nothing but the path under test has processors to itself.
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
	// memory is in front of the hosts of a rack with memory links; raw frames cross the veth pairs there,
	// too.
	memory = "cable: memory\n"
	stores = `hosts:
  - {name: md0, role: metadata}
  - {name: "ms[0-1]", role: memory}
  - {name: "cn[0-3]", role: compute}
`
)

// racks are in the order of a round.
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
	{"clover", stores, ycsb("clover")},
	{"memory-clover", memory + stores, ycsb("clover")},
	{"sherman", stores, ycsb("sherman")},
	{"memory-sherman", memory + stores, ycsb("sherman")},
}

// paths measures the path between two hosts.
var paths = []measure{
	{"raw_8", perfArgs("raw_bw", "--size", "8", "--iters", "200000"), "msgs/s", "", messages},
	{"write_8", perfArgs("write_bw", "--size", "8", "--iters", "200000"), "msgs/s", "raw_8", messages},
	{"cas_16", perfArgs("atomic_bw", "--type", "cas", "--tx-depth", "16", "--iters", "50000"), "msgs/s", "raw_8", messages},
	{"raw_4k", perfArgs("raw_bw", "--size", "4096", "--iters", "100000"), "B/s", "", volume},
	{"write_64k", perfArgs("write_bw", "--size", "64KiB", "--iters", "5000"), "B/s", "raw_4k", volume},
	{"read_64k", perfArgs("read_bw", "--size", "64KiB", "--iters", "5000"), "B/s", "raw_4k", volume},
	{"raw_lat", perfArgs("raw_lat", "--size", "8", "--iters", "20000"), "sec/op", "", median},
	{"read_lat", perfArgs("read_lat", "--size", "8", "--iters", "20000"), "sec/op", "raw_lat", median},
	{"cas_lat", perfArgs("atomic_lat", "--type", "cas", "--iters", "20000"), "sec/op", "raw_lat", median},
}

func perfArgs(test string, flags ...string) []string {
	return append([]string{"perf", test, "--from", "cn0", "--to", "ms0"}, flags...)
}

// ycsb measures a store with 64 clients.
func ycsb(store string) []measure {
	args := func(workload string) []string {
		return []string{"run", "ycsb", "--store", store, "--workload", workload, "--clients", "64", "--duration", "3s"}
	}
	return []measure{
		{"ycsb_c", args("c"), "ops/s", "", throughput},
		{"ycsb_a", args("a"), "ops/s", "", throughput},
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
