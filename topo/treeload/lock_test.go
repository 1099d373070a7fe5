package treeload

import (
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/topo/costs"
)

// One lock yields what its place allows: CAS as many as published, and through the switch as many as WRITEs.
func TestLocksAsPublished(t *testing.T) {
	m, err := costs.Builtin("connectx5-dpdk")
	if err != nil {
		t.Fatal(err)
	}
	list := Locks()
	for i := range list {
		s := &list[i]
		l := s.load
		l.Clients, l.Seed = 64, 1
		r, err := l.Measure(s.model(m))
		if err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		s.Points = append(s.Points, LockPoint{l.Clients, r.Attempts / 1e6, r.Acquired / 1e6, r.P50, r.P99, r.Replaced})
		if got := r.Attempts / 1e6; s.Published > 0 && (got < 0.9*s.Published || got > 1.05*s.Published) {
			t.Errorf("%s: %.2f Mops with 64 clients, want %.3g", s.Name, got, s.Published)
		}
		if s.direct && (r.Acquired < PublishedPairs*0.95e6 || r.Acquired > PublishedPairs*1.1e6) {
			t.Errorf("%s: %.3g locks a second, want %.3g M as published", s.Name, r.Acquired, PublishedPairs)
		}
		if r.Acquired == 0 || l.Mode != "" != (r.Replaced > 0.99) {
			t.Errorf("%s: %.0f locks a second, %.0f%% replaced", s.Name, r.Acquired, 100*r.Replaced)
		}
	}
	var b strings.Builder
	if err := WriteLocks(&b, list); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + b.String())
}
