package insim

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/store/kv"
)

// steadyRun is how long clients work in the tests of steady state, before operations are counted and
// while they are. raceRun replaces it for a load in which clients lose most races.
const (
	steadyRun = time.Millisecond
	raceRun   = 3 * time.Millisecond
)

// Each store is in steady state with 64 and with 400 clients of which half the operations are
// writes, with a switch that helps and without one. No operation fails. In so short a time both
// halves have about as many operations: a store that collapses has none in the second half. Clover's
// pool is so small that clients take about as many nodes as there are, and as many become free.
func TestSteadyStates(t *testing.T) {
	half, err := kv.FindWorkload("a")
	if err != nil {
		t.Fatal(err)
	}
	p := &Sim{Cost: model(t, "connectx5").AtLineRate()}
	for _, clients := range []int{64, 400} {
		for _, helped := range []bool{false, true} {
			clover := experiment.Clover{
				Clients: clients, Writes: 50, Keys: 128, Zipf: 0.99, Pool: 128 + 100*clients, Warm: raceRun, Run: raceRun,
			}
			sherman := experiment.Sherman{Clients: clients, Workload: half, Keys: 2000, Zipf: 0.99, Locks: experiment.LocksDevice, Warm: steadyRun, Run: steadyRun}
			fusee := experiment.Fusee{Clients: clients, Workload: half, Keys: 200, Zipf: 0.99, Warm: steadyRun / 2, Run: steadyRun / 2}
			if helped {
				// in each half superseded nodes become free at least once (clover/meta.tidyPause)
				clover.Switch, clover.Warm, clover.Run = both, 5*steadyRun, 2*steadyRun
				sherman.Locks = experiment.LocksSwitch
				fusee.Switch = experiment.Switch{Action: experiment.ReplaceAtomics}
			}
			for name, run := range map[string]func() (experiment.StoreResult, error){
				"clover":  func() (experiment.StoreResult, error) { return p.Clover(t.Context(), clover) },
				"sherman": func() (experiment.StoreResult, error) { return p.Sherman(t.Context(), sherman) },
				"fusee":   func() (experiment.StoreResult, error) { return p.Fusee(t.Context(), fusee) },
			} {
				t.Run(fmt.Sprintf("%s,%d clients,switch helps=%v", name, clients, helped), func(t *testing.T) {
					t.Parallel()
					r, err := run()
					if err != nil {
						t.Fatal(err)
					}
					steady(t, &r)
				})
			}
		}
	}
}

// A metadata server with one thread, which is busy all the time, sustains 10 million writes a second:
// clients whose report is not answered yet do not ask for nodes besides.
func TestOneMetadataThread(t *testing.T) {
	m := *model(t, "connectx5").AtLineRate()
	m.Metadata.Threads = 1
	r, err := (&Sim{Cost: &m}).Clover(t.Context(), experiment.Clover{
		Clients: 400, Writes: 100, Keys: 1024, Zipf: 0.99, Switch: both, Warm: 5 * steadyRun, Run: 2 * steadyRun,
	})
	if err != nil {
		t.Fatal(err)
	}
	steady(t, &r)
	writes := r.Throughput() * float64(r.Writes()) / float64(r.Total())
	if writes < 10e6 || r.MetaCalls/writes > 0.025 {
		t.Errorf("%.3g writes a second, %.3g requests to the metadata server for a write; want at least 10 million and at most 0.025", writes, r.MetaCalls/writes)
	}
}

func steady(t *testing.T, r *experiment.StoreResult) {
	t.Helper()
	a, b := float64(r.Halves[0]), float64(r.Halves[1])
	t.Logf("%.3g Mops, %.0f and %.0f operations, %+v", r.Throughput()/1e6, a, b, r.Nodes)
	if r.Failed+r.Wrong+r.NotFound > 0 || min(a, b) < 0.6*max(a, b) {
		t.Errorf("%.0f operations in the first half, %.0f in the second; %d failed (%s), %d wrong, %d found no key", a, b, r.Failed, r.FirstError, r.Wrong, r.NotFound)
	}
	if n := r.Nodes; n != nil && float64(n.FreeFirst)-float64(n.FreeSecond) > 0.08*float64(n.All) {
		t.Errorf("of %d nodes %d are free on average in the first half, %d in the second", n.All, n.FreeFirst, n.FreeSecond)
	}
}
