package insim

import (
	"testing"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/store/kv"
)

// breakdowns runs clients of each store on few keys.
func breakdowns(t *testing.T, clients int, w kv.Workload) map[string]experiment.StoreResult {
	t.Helper()
	out := map[string]experiment.StoreResult{}
	note := func(name string, r experiment.StoreResult, err error) {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out[name] = r
	}
	p := &Sim{Cost: model(t, "connectx5")}
	r, err := p.Clover(t.Context(), experiment.Clover{Clients: clients, Writes: 100 * w.Update, Keys: 64, Zipf: 0.99, Warm: brief, Run: brief})
	note("clover", r, err)
	r, err = p.Sherman(t.Context(), experiment.Sherman{Clients: clients, Workload: w, Keys: 64, Zipf: 0.99, Locks: experiment.LocksHost, Run: brief})
	note("sherman", r, err)
	r, err = p.Fusee(t.Context(), experiment.Fusee{Clients: clients, Workload: w, Keys: 64, Zipf: 0.99, IndexReplicas: 2, Run: brief})
	note("fusee", r, err)
	return out
}

// part returns the mean time of an operation in some phases, in microseconds.
func part(b *kv.Breakdown, of ...kv.Phase) (sum float64) {
	for _, p := range of {
		sum += b.Phases[p.String()]
	}
	return sum
}

// trips are the phases of round trips outside of locks.
func trips() (list []kv.Phase) {
	for _, p := range kv.Phases() {
		if p >= kv.PhaseTrip {
			list = append(list, p)
		}
	}
	return list
}

// A client that is alone waits for round trips and nothing else: each takes about as long as a READ,
// and there are as many as the store counts. In a crowd on few keys, Sherman's writers wait for
// locks, and no other client does.
func TestBreakdownOfStores(t *testing.T) {
	w := kv.Workload{Name: "half", Read: 0.5, Update: 0.5}
	const least, most = 2, 5 // of a round trip with this cost model, in microseconds
	for name, r := range breakdowns(t, 1, w) {
		s := r.Summary()
		if len(s.Breakdown) != 3 {
			t.Fatalf("%s: %+v", name, s.Breakdown)
		}
		read, all := &s.Breakdown[0], &s.Breakdown[2]
		t.Logf("%s: %+v", name, s.Breakdown)
		one := read.Phases[kv.PhaseTrip.String()]
		if one < least || one > most {
			t.Errorf("%s: the first round trip of a GET takes %.2f usec", name, one)
		}
		waits := part(all, append(trips(), kv.PhaseLock)...)
		if each := waits / s.RTTsPerOp; each < least || each > most {
			t.Errorf("%s: %.2f usec in %.2f round trips an operation", name, waits, s.RTTsPerOp)
		}
		if lock := part(&s.Breakdown[1], kv.PhaseLock); (name == "sherman") != (lock > one/2) {
			t.Errorf("%s: an update waits %.2f usec for a lock", name, lock)
		}
		if other := part(all, kv.PhaseBackOff, kv.PhaseQueue); other != 0 {
			t.Errorf("%s: %.2f usec in pauses", name, other)
		}
		if rpc := part(all, kv.PhaseRPC); (r.RPCs > 0) != (rpc > 0) {
			t.Errorf("%s: %d RPCs take %.2f usec an operation", name, r.RPCs, rpc)
		}
	}
	for name, r := range breakdowns(t, 32, w) {
		s := r.Summary()
		t.Logf("%s: %+v", name, s.Breakdown)
		update := &s.Breakdown[1]
		if lock := part(update, kv.PhaseLock); (name == "sherman") != (lock > update.Mean/2) {
			t.Errorf("%s: an update waits %.2f of %.2f usec for locks", name, lock, update.Mean)
		}
		if pause := part(update, kv.PhaseBackOff); name == "fusee" && pause == 0 {
			t.Errorf("%s: no update pauses while another client replaces the same slot", name)
		}
	}
}
