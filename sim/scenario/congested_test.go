package scenario

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/metrics"
)

func mustCongest(t *testing.T, name string, c Congestion) Scenario {
	t.Helper()
	s, err := mustFind(t, name).Congested(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// L5: the checks of the scenarios hold over congested links, with every congestion control, with and
// without PFC, and with every recovery; hosts are paused, packets marked and dropped, and queue pairs
// slowed meanwhile.
func TestCongestedSeeds(t *testing.T) {
	t.Parallel()
	var c metrics.NIC
	var pauses, dropped uint64
	for _, name := range congestedScenarios {
		s := mustCongest(t, name, Congestion{Algorithm: Any})
		if r, err := s.Recovering(Any); err == nil {
			s = r
		}
		for seed := uint64(1); seed <= uint64(seedsPerTest); seed++ {
			r := s.Run(seed, Options{})
			if r.Err != nil {
				t.Errorf("rdmalab sim %s: %s: %v", s.Args(seed), r.Plan, r.Err)
			}
			addCounters(&c, &r.Counters)
			pauses, dropped = pauses+r.Links.Pauses, dropped+r.Links.LostQueue
		}
	}
	if pauses == 0 || dropped == 0 || c.RxMarked == 0 || c.TxCnp == 0 || c.RxCnp == 0 {
		t.Errorf("%d pause frames, %d packets dropped by queues, %d marked, %d CNPs sent, %d handled", pauses, dropped, c.RxMarked, c.TxCnp, c.RxCnp)
	}
}

// Seeds in which a paused NIC held packets for longer than selective retransmission waits: they were sent again although
// nothing was lost, which once counted as a failure.
func TestPausesOutwaitSelectiveRetransmission(t *testing.T) {
	t.Parallel()
	s, err := mustCongest(t, "transport", Congestion{Algorithm: Any, PFC: Any}).Recovering(Any)
	if err != nil {
		t.Fatal(err)
	}
	for _, seed := range []uint64{22488, 27666, 28134} {
		if r := s.Run(seed, Options{}); r.Err != nil || r.Counters.RetransPkts == 0 || r.Links.Pauses == 0 {
			t.Errorf("rdmalab sim %s: %s: %d sent again, %d pauses: %v", s.Args(seed), r.Plan, r.Counters.RetransPkts, r.Links.Pauses, r.Err)
		}
	}
}

// A seed of a congested scenario gives the same events again, and other ones than without congestion.
func TestCongestedSeedsReplay(t *testing.T) {
	t.Parallel()
	s := mustCongest(t, "transport", Congestion{Algorithm: "swift", PFC: "on"})
	if want := "transport --seed 7 --congestion swift --pfc on"; s.Args(7) != want {
		t.Errorf("%q, want %q", s.Args(7), want)
	}
	a, b, plain := s.Run(7, Options{Hash: true}), s.Run(7, Options{Hash: true}), mustFind(t, "transport").Run(7, Options{Hash: true})
	if a.Hash != b.Hash || a.Hash == plain.Hash {
		t.Errorf("hashes %x, %x and %x without", a.Hash, b.Hash, plain.Hash)
	}
	if !strings.Contains(a.Plan, "congestion=swift/") || !strings.Contains(a.Plan, " lossless ") {
		t.Error(a.Plan)
	}
}

// With Any, seeds have each congestion control, with and without PFC, and each recovery.
func TestAnyIsAll(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for seed := uint64(1); seed <= 200; seed++ {
		g := drawCongestion(Congestion{Algorithm: Any}, seed)
		seen[fmt.Sprint(g.params.Algorithm, " ", g.pfc, " ", recoveryOf(Any, seed))] = true
		if err := g.params.Validate(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	if want := (len(Algorithms()) - 1) * 2 * (len(Recoveries()) - 1); len(seen) != want {
		t.Errorf("%d of %d combinations: %v", len(seen), want, seen)
	}
}

// What a Congestion cannot be is refused with what can.
func TestCongestionRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		c    Congestion
		want string
	}{
		{"soak", Congestion{Algorithm: Any}, "use [transport"},
		{"transport", Congestion{PFC: "on"}, "--pfc needs --congestion"},
		{"transport", Congestion{Algorithm: "bbr"}, "use one of dcqcn"},
		{"transport", Congestion{Algorithm: Any, PFC: "yes"}, "use on, off, any"},
	} {
		if _, err := mustFind(t, c.name).Congested(c.c); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %v: %v, want %q", c.name, c.c, err, c.want)
		}
	}
	if _, err := mustFind(t, "transport").Recovering("tcp"); err == nil || !strings.Contains(err.Error(), "use go-back-n, irn, rack, any") {
		t.Error(err)
	}
}

// In seeds of locks, a link lost or delayed the frame that ends a pause, and the host stood still for 67 ms, longer
// than its retries last, until pauses were made as short as longestPause. In the one of clover, ACK timeouts of
// 0.5 ms and doubled packets filled links of 100 Mb/s with READs that were sent again, without end.
func TestCongestedSeedsThatFailedOnce(t *testing.T) {
	t.Parallel()
	for name, seeds := range map[string][]uint64{"locks": {73, 638, 1409}, "clover": {92}} {
		s := mustCongest(t, name, Congestion{Algorithm: Any})
		if r, err := s.Recovering(Any); err == nil {
			s = r
		}
		for _, seed := range seeds {
			if r := s.Run(seed, Options{}); r.Err != nil {
				t.Errorf("rdmalab sim %s: %s: %v", s.Args(seed), r.Plan, r.Err)
			}
		}
	}
}
