package insim

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Clients of FUSEE remember the slots of all keys, so a GET is one round trip, and so the throughput
// of reads is higher than that of updates. No operation fails or returns a wrong value.
func TestFuseeReadsAndUpdates(t *testing.T) {
	rate := make(map[float64]float64)
	for _, updates := range []float64{0, 0.5, 1} {
		r, err := (&Sim{Cost: model(t, "connectx5")}).Fusee(t.Context(), experiment.Fusee{
			Clients: 16, Keys: 200, Zipf: 0.99, Workload: kv.Workload{Name: "test", Read: 1 - updates, Update: updates},
		})
		if err != nil {
			t.Fatal(err)
		}
		trips := r.Summary().RTTsPerOp
		rate[updates] = r.Throughput()
		t.Logf("%g updates: %.3g ops/s, %.2f round trips, %.0f bytes", updates, r.Throughput(), trips, r.BytesPerOp)
		if r.Total() == 0 || r.Failed+r.Wrong+r.NotFound > 0 {
			t.Errorf("%g updates: %d operations, %d failed, %d were wrong (%s)", updates, r.Total(), r.Failed, r.Wrong, r.FirstError)
		}
		if updates == 0 && trips > 1.05 { // a few slots have a fingerprint of another key
			t.Errorf("a GET takes %.3f round trips", trips)
		}
	}
	if rate[0] < 1.5*rate[1] {
		t.Errorf("%v", rate)
	}
}

// fuseeRan runs a load of FUSEE. No operation may fail.
func fuseeRan(t *testing.T, l experiment.Fusee) experiment.StoreResult {
	t.Helper()
	r, err := (&Sim{Cost: model(t, "connectx3")}).Fusee(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v: %.3g ops/s, %.2f round trips, servers send %.3g", l, r.Throughput(), r.Summary().RTTsPerOp, r.Links)
	if r.Total() == 0 || r.Failed+r.Wrong+r.NotFound > 0 {
		t.Errorf("%d operations, %d failed, %d were wrong, %d found no key (%s)", r.Total(), r.Failed, r.Wrong, r.NotFound, r.FirstError)
	}
	return r
}

// A GET of a client without cache takes two round trips, a DELETE or an UPDATE of an own key two with
// a cache and one replica of the index, and an INSERT three. Each operation is one of its kind.
func TestFuseeSingleOperations(t *testing.T) {
	for _, c := range []struct {
		kind    kv.Kind
		w       kv.Workload
		noCache bool
		trips   float64
	}{
		{kv.KindRead, kv.Workload{Read: 1}, true, 2},
		{kv.KindRead, kv.Workload{Read: 1}, false, 1},
		{kv.KindUpdate, kv.Workload{Update: 1}, false, 2},
		{kv.KindDelete, kv.Workload{Delete: 1}, false, 2},
		{kv.KindInsert, kv.Workload{Insert: 1}, false, 3}, // and a little for blocks
	} {
		r := fuseeRan(t, experiment.Fusee{
			Clients: 2, Keys: 400, Own: true, Workload: c.w, NoCache: c.noCache, Value: 1016, Warm: 50 * time.Microsecond, Run: 200 * time.Microsecond,
		})
		if trips := r.Summary().RTTsPerOp; trips < c.trips || trips > c.trips+0.6 || r.Ops[c.kind] != r.Total() {
			t.Errorf("%v: %.2f round trips, want %g; %v operations", c.kind, trips, c.trips, r.Ops)
		}
	}
}

// The objects that clients write first are on all memory servers, so all of them answer GETs.
func TestFuseeObjectsOnAllServers(t *testing.T) {
	r := fuseeRan(t, experiment.Fusee{Clients: 8, Keys: 400, Workload: kv.Workload{Read: 1}, Servers: 3, Value: 1016})
	for i, sent := range r.Links {
		if sent < 0.15*(r.Links[0]+r.Links[1]+r.Links[2]) {
			t.Errorf("server %d sends %.3g bytes a second of %.3g", i, sent, r.Links)
		}
	}
}

// Clients that join in the middle of a run raise the throughput until they leave.
func TestFuseeGuests(t *testing.T) {
	r := fuseeRan(t, experiment.Fusee{
		Clients: 4, Keys: 100, Workload: kv.Workload{Read: 1}, Steps: 8, Visit: experiment.Visit{Guests: 4, Join: 2, Leave: 5}, Run: 1600 * time.Microsecond,
	})
	if len(r.Steps) != 8 || r.Steps[5] < 1.5*r.Steps[1] || r.Steps[7] > 1.2*r.Steps[1] || r.Steps[1] == 0 {
		t.Errorf("%.3g", r.Steps)
	}
}

// A switch that replaces the atomics on the index leaves the store correct. It saves no round trips:
// also a switch that forwards hands the CASes of a slot to all servers in one order.
func TestFuseeOrderedSlots(t *testing.T) {
	l := experiment.Fusee{
		Clients: 16, Keys: 20, Zipf: 0.99, Workload: kv.Workload{Update: 1}, Servers: 3, Replicas: 3, IndexReplicas: 3,
	}
	plain := fuseeRan(t, l)
	l.Switch = experiment.Switch{Action: experiment.ReplaceAtomics}
	ordered := fuseeRan(t, l)
	if a, b := plain.Summary().RTTsPerOp, ordered.Summary().RTTsPerOp; b < 0.9*a || b > 1.1*a {
		t.Errorf("%.2f and %.2f round trips", a, b)
	}
	if a, b := plain.Percentile(kv.KindUpdate, 50), ordered.Percentile(kv.KindUpdate, 50); a == b {
		t.Errorf("the median is %v with both switches: no CAS was replaced", a)
	}
}
