package insim

import (
	"context"
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/experiment"
)

// All GETs of a table with texts as keys have the right answer, whether the NIC or the process answers.
func TestMemcachedGets(t *testing.T) {
	p := &Sim{Cost: model(t, "connectx5")}
	for _, way := range []string{experiment.WayNIC, experiment.WayReads, experiment.WayPolling} {
		l := experiment.Memcached{Way: way, Keys: 5000, Gets: 2000, Bytes: 64, Clients: 4}
		res, err := p.Memcached(context.Background(), l)
		if err != nil || res.Bad(l) != nil || res.Keys != l.Keys || res.Rate < 1e5 {
			t.Errorf("%s: %+v, %v, %v", way, res, err, res.Bad(l))
		}
	}
	if _, err := p.Memcached(context.Background(), experiment.Memcached{Way: experiment.WayMemcached}); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	for _, bad := range []experiment.MemcachedResult{{Gets: 1}, {Gets: 2, Wrong: 1}, {Gets: 2, Missed: 1}} {
		if bad.Bad(experiment.Memcached{Gets: 2}) == nil {
			t.Errorf("%+v is taken for good", bad)
		}
	}
}

// Rings of one processing unit take turns: a NIC gains from rings up to the number of its units. Its rate
// is that of Table 1 within 1.5.
func TestProcessingUnits(t *testing.T) {
	p := &Sim{Cost: model(t, "connectx5")}
	rate := func(nic string, rings int) float64 {
		res, err := p.RedN(context.Background(), experiment.RedN{Kind: experiment.ChainRate, Way: "WRITE", Bytes: 64, Clients: rings, Cost: nic})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s, %d rings: %.1f million a second", nic, rings, res.Rate/1e6)
		return res.Rate / 1e6
	}
	for nic, c := range map[string]struct {
		units  int
		theirs float64
	}{"connectx3": {2, 15}, "connectx5": {8, 63}, "connectx6": {16, 112}} {
		one, full, more := rate(nic, 1), rate(nic, c.units), rate(nic, 2*c.units)
		if n := float64(c.units); full < 0.9*n*one || full > 1.1*n*one || more < 0.9*full || more > 1.1*full {
			t.Errorf("%s: one ring %.1f, %d rings %.1f, twice as many %.1f", nic, one, c.units, full, more)
		}
		if r := more / c.theirs; r < 1/1.5 || r > 1.5 {
			t.Errorf("%s: %.1f, Table 1 has %.1f", nic, more, c.theirs)
		}
	}
}
