package insim

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/onerma/executor"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// soloAndRoCE measures a load by 1RMA and by RoCEv2.
func soloAndRoCE(t *testing.T, l experiment.OneRMA) (one, roce experiment.OneRMAResult) {
	t.Helper()
	one = solo(t, l)
	l.Way = experiment.WayRoCE
	return one, solo(t, l)
}

// Without congestion, the same operations take the same time by 1RMA and by RoCEv2, because the links
// are the same. That holds for the GETs of figure 8, the READs of figure 10 and the slots of figure
// 11 b.
func TestSameLinks(t *testing.T) {
	near := func(what string, a, b float64) {
		t.Helper()
		if a <= 0 || a < 0.95*b || a > 1.05*b {
			t.Errorf("%s: %.3f by 1RMA, %.3f by RoCEv2", what, a, b)
		}
	}
	one, roce := soloAndRoCE(t, experiment.OneRMA{Kind: experiment.SoloGets, Hosts: 7, First: 15, Load: 0.5, Span: 100 * time.Microsecond})
	near("GETs", one.Median, roce.Median)
	near("goodput of GETs", one.Goodput, roce.Goodput)
	if one.Goodput < 0.4 || one.Goodput > 0.6 || one.Median < 1.6 || one.Median > 2 {
		t.Errorf("GETs at half of the line rate: %+v", one)
	}
	one, roce = soloAndRoCE(t, experiment.OneRMA{Kind: experiment.SoloRandom, Hosts: 6, First: 15, Load: 0.3, Span: 200 * time.Microsecond})
	near("READs", one.Median, roce.Median)
	near("goodput of READs", one.Goodput, roce.Goodput)
	for _, slots := range []int{1, 4, 12} {
		one, roce = soloAndRoCE(t, experiment.OneRMA{Kind: experiment.SoloSlots, Slots: slots, Span: 200 * time.Microsecond})
		near("slots", one.Goodput, roce.Goodput)
		near("slots, multiples of one", one.Goodput, 0.0704*float64(slots))
	}
	if one, roce = soloAndRoCE(t, experiment.OneRMA{Kind: experiment.SoloSlots, Slots: 64, Span: 200 * time.Microsecond}); min(one.Goodput, roce.Goodput) < 0.95 {
		t.Errorf("64 slots: %.3f and %.3f of the line rate", one.Goodput, roce.Goodput)
	}
}

// With PFC the switch pauses hosts when their frames wait; a light load does not differ from that without. Pauses
// begin with the load, and no frame is lost: a lost one would take an ACK timeout of 67 ms.
func TestLinksWithPFC(t *testing.T) {
	pfc := func(l experiment.OneRMA) (with, without experiment.OneRMAResult) {
		t.Helper()
		l.Way = experiment.WayPFC
		with = solo(t, l)
		l.Way = experiment.WayRoCE
		return with, solo(t, l)
	}
	with, without := pfc(experiment.OneRMA{Kind: experiment.SoloGets, Hosts: 7, First: 15, Load: 0.5, Span: 100 * time.Microsecond})
	if with.Median < 0.95*without.Median || with.Median > 1.05*without.Median || with.Goodput < 0.95*without.Goodput || with.Pauses != 0 {
		t.Errorf("GETs at half of the line rate: %+v, without PFC %+v", with, without)
	}
	with, without = pfc(experiment.OneRMA{Kind: experiment.SoloMixed, Hosts: 8, First: 15, Load: 0.8, Span: time.Millisecond})
	if with.Pauses == 0 || without.Pauses != 0 || with.P99 < without.P99 || with.P99 > 1000 || with.Goodput < 0.5*without.Goodput {
		t.Errorf("mixed sizes at 80 %% of the line rate: %+v, without PFC %+v", with, without)
	}
	t.Logf("mixed sizes: %+v, without PFC %+v", with, without)
	if _, err := new(Sim).OneRMA(t.Context(), experiment.OneRMA{Kind: experiment.SoloRekey, Way: experiment.WayPFC}); err == nil {
		t.Error("a load without PFC is measured as one with PFC")
	}
}

// The shapes of figures 11 a, 12 and 13: WRITEs saturate before READs; a small READ waits for a whole
// transfer on its connection, and with 1RMA it does not.
func TestShapesBesideRoCE(t *testing.T) {
	at80 := experiment.OneRMA{Kind: experiment.SoloRandom, Hosts: 8, First: 15, Load: 0.8, Span: 200 * time.Microsecond}
	read := solo(t, at80)
	at80.Write = true
	if write, roce := soloAndRoCE(t, at80); write.Median < 2*read.Median || roce.Median > read.Median {
		t.Errorf("at 80 %% of the line rate: READ %+v, WRITE %+v, by RoCEv2 %+v", read, write, roce)
	}
	const transfer = 17 // of a megabyte, in round trips at the line rate
	one, roce := soloAndRoCE(t, experiment.OneRMA{Kind: experiment.SoloBeside, Large: 1 << 20, First: 15, Span: 4 * time.Millisecond})
	if one.P99 > 3 || roce.P99 < transfer || roce.P99 > transfer+1 || roce.Median < transfer/4 {
		t.Errorf("beside a transfer of %d round trips: %+v, by RoCEv2 %+v", transfer, one, roce)
	}
	one, roce = soloAndRoCE(t, experiment.OneRMA{Kind: experiment.SoloMixed, Hosts: 5, First: 15, Load: 0.5, Span: time.Millisecond})
	if roce.Median < 2*one.Median || roce.P99 < 3*one.P99 || one.LargeMedian < 3 || roce.LargeMedian < 3 {
		t.Errorf("mixed sizes at half of the line rate: %+v, by RoCEv2 %+v", one, roce)
	}
}

// A REKEY under load touches READs of its region alone, and delays them by at most a round trip if the
// client has the next key. A client that must ask for it waits for another round trip. A connection
// that is made again also delays READs of other regions.
func TestRekeyTouchesItsRegionAlone(t *testing.T) {
	for _, tc := range []struct {
		way         string
		least, most float64 // added delay of READs of the region
	}{{experiment.WaySolo, 0.5, 1}, {experiment.WayDriver, 0.5, 1}, {experiment.WayAsks, 1.5, 2}} {
		r := solo(t, experiment.OneRMA{Kind: experiment.SoloRekey, Way: tc.way, First: 15, Load: 0.3, Span: 2 * time.Millisecond}).Rekey
		if r.Failed[0] < 1 || r.Times != 1 || r.Added[0] < tc.least || r.Added[0] > tc.most {
			t.Errorf("%q: READs of the region: %+v", tc.way, *r)
		}
		if r.Failed[1] != 0 || r.Added[1] > r.Added[0]/2 {
			t.Errorf("%q: READs of the other region: %+v", tc.way, *r)
		}
	}
	// At a high load, READs that are tried again queue up, and still no READ fails twice.
	r := solo(t, experiment.OneRMA{Kind: experiment.SoloRekey, First: 15, Load: 0.7, Span: 2 * time.Millisecond}).Rekey
	if r.Times != 1 || r.Failed[1] != 0 || r.Added[0] > 1.5 || r.Added[1] > 0.75 {
		t.Errorf("at 70 %% of the line rate: %+v", *r)
	}
	r = solo(t, experiment.OneRMA{Kind: experiment.SoloRekey, Way: experiment.WayRoCE, Load: 0.3, Span: 2 * time.Millisecond}).Rekey
	if r.Failed[0] < 1 || r.Failed[1] < 1 || r.Added[0] < 1 || r.Added[1] < 0.5 {
		t.Errorf("by RoCEv2: %+v", *r)
	}
}

// The log of SoloRekey shows a READ of the other region that fails or is late, and refuses READs that
// have not ended.
func TestRekeyLog(t *testing.T) {
	log := func(keys int, ended ...clock.Time) *rekeyLog {
		g := &rekeyLog{keys: keys}
		for i, at := range ended {
			g.begin(i%2, 0).ended = at
		}
		return g
	}
	usual := log(0, 10, 10)
	if r, err := log(1, 10, 10).result(usual); err != nil || *r != (experiment.Rekey{}) {
		t.Errorf("nothing was touched: %+v, %v", r, err)
	}
	late := log(2, 10, 10+clock.Time(soloRTT))
	late.reads[1].refused = 3
	if r, err := late.result(usual); err != nil || *r != (experiment.Rekey{Failed: [2]float64{0, 0.5}, Times: 3, Added: [2]float64{0, 1}}) {
		t.Errorf("a READ of the other region was late: %+v, %v", r, err)
	}
	for i, g := range []*rekeyLog{log(0, 10, 10), log(1, 10), log(1, 10, 0)} {
		if r, err := g.result(usual); err == nil {
			t.Errorf("log %d was compared: %+v", i, r)
		}
	}
}

// The measure of fairness finds the first interval in which rates are fair, and none if one flow has a
// single operation in flight beside a flow with the line rate.
func TestFairness(t *testing.T) {
	steps := 0
	n, err := soloFair(func() (a, b float64, err error) { steps++; return 100, float64(30 * steps), nil })
	if n != 3*experiment.OneRMAFairStep || err != nil {
		t.Errorf("fair after %v round trips, %v", n, err)
	}
	if _, err := soloFair(func() (a, b float64, err error) { return 0, 0, errors.New("x") }); err == nil {
		t.Error("the error of a step is lost")
	}
	r, err := newSoloRack(t.Context(), 3, &experiment.OneRMA{First: 15})
	if err != nil {
		t.Fatal(err)
	}
	r.hosts[0].endless(2)
	r.hosts[1].flow(2, soloChunk, true, 0).start()
	n, err = soloFair(func() (a, b float64, err error) {
		got, err := r.share(experiment.OneRMAFairStep*soloRTT, 0, 1)
		return got[0], got[1], err
	})
	if n != 0 || err != nil {
		t.Errorf("an unfair pair was fair after %v round trips, %v", n, err)
	}
}

// Without the local signal, a fair share takes many times as long, also for two processes of one host.
func TestAblation(t *testing.T) {
	for kind, times := range map[string]float64{experiment.SoloRamp: 10, experiment.SoloLocal: 2} {
		l := experiment.OneRMA{Kind: kind, First: 15}
		with := solo(t, l)
		l.TotalDelay = true
		if without := solo(t, l); with.Fair == 0 || without.Fair < times*with.Fair {
			t.Errorf("%s: fair after %v round trips, without the local signal %v", kind, with.Fair, without.Fair)
		}
	}
}

// A transfer that ends after the measurement does not count as goodput.
func TestFlowUntil(t *testing.T) {
	r, err := newSoloRack(t.Context(), 2, &experiment.OneRMA{First: 15})
	if err != nil {
		t.Fatal(err)
	}
	f := r.hosts[0].flow(1, soloChunk, false, 0)
	f.until = clock.Time(1)
	f.ended(&executor.Result{Moved: soloChunk})
	if err := r.run(soloRTT); err != nil {
		t.Fatal(err)
	}
	f.ended(&executor.Result{Moved: soloChunk})
	if f.moved != soloChunk || len(f.took) != 2 {
		t.Errorf("%d bytes, %d times", f.moved, len(f.took))
	}
}
