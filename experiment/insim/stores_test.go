package insim

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/store/kv"
)

// These durations are too short for the full effect of steering, but long enough to measure one.
const (
	brief = 500 * time.Microsecond
	short = 2 * time.Millisecond
)

// halfWrites is a load of clients of whose operations half are updates.
func halfWrites(clients int, zipf float64, box experiment.Switch) experiment.Clover {
	return experiment.Clover{Clients: clients, Writes: 50, Zipf: zipf, Switch: box, Warm: brief, Run: short}
}

// both is a switch that steers reads and appends.
var both = experiment.Switch{Action: experiment.Steer, Steer: "both"}

func cloverRan(t *testing.T, l experiment.Clover) experiment.StoreResult {
	t.Helper()
	r, err := (&Sim{Cost: model(t, "connectx5")}).Clover(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v: %.3g ops/s, first try %.3f, %.0f bytes/op, %.2f round trips", l, r.Throughput(), r.FirstTryShare(), r.BytesPerOp, r.Summary().RTTsPerOp)
	if r.Total() == 0 || l.Switch.Mode != experiment.Published && r.Failed+r.Wrong > 0 {
		t.Errorf("%d operations, %d failed, %d were wrong (%s)", r.Total(), r.Failed, r.Wrong, r.FirstError)
	}
	return r
}

// The throughput of contended appends collapses: with many clients hardly any write succeeds at its
// first attempt (SwordBox fig. 5). If the switch steers, most do.
func TestCollapseAndSteering(t *testing.T) {
	few, many := cloverRan(t, halfWrites(1, 0.99, experiment.Switch{})), cloverRan(t, halfWrites(64, 0.99, experiment.Switch{}))
	steered := cloverRan(t, halfWrites(64, 0.99, both))
	if few.FirstTryShare() < 1 || many.FirstTryShare() > 0.7 || steered.FirstTryShare() < 0.95 {
		t.Errorf("first try %.2f alone, %.2f in a crowd, %.2f steered", few.FirstTryShare(), many.FirstTryShare(), steered.FirstTryShare())
	}
}

// A key's chain stays on one memory server, so a switch in front of two servers steers as many
// appends as one in front of one server (hole 27). This holds in a large pool, and in one of three
// nodes a key, whose nodes are reused all the time.
func TestSteeringOnTwoServers(t *testing.T) {
	for _, c := range []struct{ clients, pool int }{{16, 0}, {64, 0}, {64, 1536}} {
		l := halfWrites(c.clients, 0.99, both)
		if l.Servers, l.Pool = 2, c.pool; c.pool > 0 {
			l.Run = 8 * time.Millisecond
		}
		if r := cloverRan(t, l); r.FirstTryShare() < 0.95 {
			t.Errorf("%d clients, %d nodes: first try %.3f", c.clients, c.pool, r.FirstTryShare())
		}
	}
}

// Clients that share queue pairs execute the same operations.
func TestSharedQueuePairs(t *testing.T) {
	for _, box := range []experiment.Switch{{}, both} {
		l := halfWrites(16, 0.99, box)
		l.Share = 4
		cloverRan(t, l)
	}
}

// The published program steers, too. In a small pool, fewer operations succeed at the first try if
// only eight hot keys are steered.
func TestSteeringModes(t *testing.T) {
	published := both
	published.Mode = experiment.Published
	l := halfWrites(32, 1.2, published)
	l.Keys, l.Run = 64, brief
	cloverRan(t, l)
	share := make(map[int]float64)
	for _, hot := range []int{0, 8} {
		box := both
		box.Hot = hot
		l := halfWrites(32, 1.2, box)
		l.Keys, l.Pool = 64, 4*64+32*17
		r := cloverRan(t, l)
		share[hot] = r.FirstTryShare()
	}
	if share[0] < 0.8 || share[8] >= share[0] {
		t.Errorf("first try %v", share)
	}
}

// The table has a row for each switch and kind of steering, with the gain over the row without
// steering behind the same switch. The middlebox is the slower switch.
func TestSteeringGainRows(t *testing.T) {
	e := named("steering-gain")
	place := experiment.Place{On: experiment.OnSim, Quick: true}
	r, err := runWith(t.Context(), &e, &Sim{Cost: model(t, e.Cost)}, place, map[string]string{"rows": "1,8", "clients": "16"})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 10 || r.Rows[0].Cell("gain").Number || cell(r.Rows[1], "gain") <= 0 || r.Rows[3].Cell("gain").Number || r.Rows[9].Cell("steer").Text != experiment.Hardened {
		t.Fatalf("%+v", r.Rows)
	}
	if fast, slow := r.Rows[1], r.Rows[4]; fast.Cell("switch").Text != "line rate" || slow.Cell("switch").Text != "cost model" || cell(slow, "mops") >= cell(fast, "mops") {
		t.Errorf("%+v", r.Rows)
	}
}

// treePlace is a place of lock words, and what answers CAS that fail.
type treePlace struct{ locks, misses string }

// treeMops returns the throughput of three seeds for each place of locks; no operation may fail.
func treeMops(t *testing.T, l experiment.Sherman) map[treePlace]float64 {
	t.Helper()
	var err error
	if l.Workload, err = kv.FindWorkload("a"); err != nil {
		t.Fatal(err)
	}
	mops := make(map[treePlace]float64)
	for seed := range uint64(3) {
		for _, at := range []treePlace{{experiment.LocksHost, ""}, {experiment.LocksDevice, ""}, {experiment.LocksSwitch, ""}, {experiment.LocksSwitch, "wait"}} {
			l.Locks, l.Misses, l.Seed = at.locks, at.misses, seed+1
			r, err := (&Sim{Cost: model(t, "connectx5")}).Sherman(t.Context(), l)
			if err != nil {
				t.Fatalf("locks in %s: %v", at, err)
			}
			t.Logf("%v: %.3g ops/s, %+v", at, r.Throughput(), r.Tree)
			mops[at] += r.Throughput() / 1e6
			if r.Failed+r.Wrong+r.NotFound > 0 {
				t.Errorf("locks in %s: %d operations failed", at, r.Failed+r.Wrong+r.NotFound)
			}
		}
	}
	return mops
}

// If clients queue for locks on their hosts, the tree has about the same throughput for all places
// of the locks: it depends more on the seed than on the place.
func TestTreeYields(t *testing.T) {
	mops := treeMops(t, experiment.Sherman{Clients: 64, Zipf: 1.2, Keys: 2000})
	for at := range mops {
		if gain := mops[at] / mops[treePlace{experiment.LocksHost, ""}]; gain < 0.7 || gain > 1.4 {
			t.Errorf("locks in %s yield %.2f times what those in host memory do", at, gain)
		}
	}
}

// Without a local queue, locks in host memory make clients slow. With locks in the switch they are
// as fast as with queues on their hosts.
func TestTreeOfClientsAlone(t *testing.T) {
	mops := treeMops(t, experiment.Sherman{Clients: 64, Zipf: 1.2, Keys: 2000, Alone: true})
	host, queued := mops[treePlace{experiment.LocksHost, ""}], mops[treePlace{experiment.LocksSwitch, "wait"}]
	if queued < 2*host || queued < mops[treePlace{experiment.LocksDevice, ""}] {
		t.Errorf("%v; want twice as much with locks in the switch as in host memory", mops)
	}
}

// With a warm cache, a search takes one round trip and a change three, or two if the lock is handed
// over. The bytes are the sums of the formats (Sherman §5). The client's counters agree with the
// packets.
func TestOperationsOnTheWire(t *testing.T) {
	list, err := new(Sim).TreeOperations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{
		"search": 1, "update": 3, "delete": 3, "insert": 3, "insert behind the last key": 3, "update, lock handed over": 2,
	}
	for _, c := range list {
		if c.RTTs != want[c.Name] || c.Bytes != c.Published || c.ClaimedRTTs != c.RTTs || c.ClaimedBytes != c.Bytes {
			t.Errorf("%s: %d round trips and %d bytes on the wire (%v), the client counts %d and %d; want %d and %d", c.Name, c.RTTs, c.Bytes, c.Packets,
				c.ClaimedRTTs, c.ClaimedBytes, want[c.Name], c.Published)
		}
	}
	if len(list) != len(want) {
		t.Errorf("%d operations were measured, want %d", len(list), len(want))
	}
}

// A write of FG+ takes four round trips, that of the other steps three; all but Sherman's write the
// whole page. Under skewed writes Sherman is faster than FG+.
func TestStepsToSherman(t *testing.T) {
	l := experiment.Sherman{Clients: 1, Keys: 2000, Workload: kv.Workload{Update: 1}}
	measure := func(step string) experiment.StoreResult {
		l.Step = step
		r, err := (&Sim{Cost: model(t, "connectx5")}).Sherman(t.Context(), l)
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		if r.Failed+r.Wrong+r.NotFound > 0 || r.Total() == 0 {
			t.Errorf("%s: %d of %d operations failed", step, r.Failed+r.Wrong+r.NotFound, r.Total())
		}
		return r
	}
	for _, step := range sherman.Steps() {
		r := measure(step.Name)
		want := 3.0
		if step.Uncombined {
			want = 4
		}
		whole := r.BytesPerOp > 2*1024
		if rtts := r.Summary().RTTsPerOp; rtts != want || whole != (step.Kind == layout.Checksummed) {
			t.Errorf("%s: %g round trips and %.0f bytes a write, want %g", step.Name, rtts, r.BytesPerOp, want)
		}
	}
	l.Clients, l.Zipf = 64, 1.2
	base, full := measure("fg+"), measure("sherman")
	if base, full := base.Throughput(), full.Throughput(); full < 2*base {
		t.Errorf("Sherman yields %.3g, FG+ %.3g operations a second", full, base)
	}
}
