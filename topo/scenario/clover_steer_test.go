package scenario

import (
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/swordbox/apps/serialize"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/swordbox/steer"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// steering makes a switch that steers with a bug. It has no record: it must not crash.
func steering(bug steer.Bug) func(*spec.Rack) (pipeline.Program, error) {
	return func(s *spec.Rack) (pipeline.Program, error) {
		set, err := rules.NewSet(s.Switch.Rules)
		if err != nil {
			return nil, err
		}
		p := serialize.New(serialize.Config{Rules: set, Steer: steer.New(steer.Config{Bug: bug}), Track: conntrack.Config{Settle: -1}})
		for port, h := range s.Hosts {
			for _, a := range []netip.Addr{h.IPv4, h.IPv6} {
				if a.IsValid() {
					p.Connections().Bind(a, port)
				}
			}
		}
		return p, nil
	}
}

// Steering without a safeguard is caught by the histories, with it they hold.
func TestPlantedSteeringBugsAreCaught(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, steer string
		bug         steer.Bug
		least       int
	}{
		{"none", "both", steer.NoBug, 0},
		{"acknowledged before the predecessor", "write", steer.TrustSent, 2},
		{"read before it is linked", "read", steer.TrustSent, 2},
	} {
		caught := 0
		for seed := uint64(1); seed <= 20; seed++ {
			change := func(p *storePlan) {
				p.steer, p.box = c.steer, steerBox(c.steer)
				p.rack.Program, p.rack.Datagrams = steering(c.bug), true
				if p.keys = 1; p.what == storeSwitchCrash {
					p.what = storeNothing
				}
			}
			s := Scenario{Name: "clover-steer", run: func(e *env) error { return runCloverSteered(e, change) }}
			if r := s.Run(seed, Options{}); r.Err != nil {
				if caught++; caught == 1 {
					t.Logf("%s: seed %d: %.200s", c.name, seed, r.Err)
				}
			}
		}
		t.Logf("%s: caught with %d of 20 seeds", c.name, caught)
		if caught < c.least || c.least == 0 && caught > 0 {
			t.Errorf("%s: caught with %d of 20 seeds, want at least %d", c.name, caught, c.least)
		}
	}
}
