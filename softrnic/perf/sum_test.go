package perf

import "testing"

// The sum of one run is its result, also of a latency test, which has no bandwidth.
func TestSumOfOne(t *testing.T) {
	lat := &Result{Lat: &Latency{Iters: 5}, Counters: map[string]uint64{"sent_pkts": 5}}
	if got := Sum([]*Result{lat}); got != lat {
		t.Errorf("%+v", got)
	}
	a, b := &Result{BW: &Bandwidth{Iters: 2, Bytes: 1 << 20}, Elapsed: 1e9}, &Result{BW: &Bandwidth{Iters: 4, Bytes: 1 << 20}, Elapsed: 2e9}
	if got := Sum([]*Result{a, b}); got.BW.Iters != 6 || got.BW.Average != 3 || a.BW.Iters != 2 {
		t.Errorf("%+v, and the first is %+v", got.BW, a.BW)
	}
}
