package contention

import (
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/topo/costs"
)

func middlebox(t *testing.T) *cost.Model {
	t.Helper()
	m, err := costs.Builtin("connectx5-dpdk")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Each series ends at the limit that the paper gives for it, and begins at what one client can do.
func TestFigureHasThePapersShape(t *testing.T) {
	for _, s := range Figure() {
		if err := s.Run(middlebox(t)); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := WriteTable(&b, []Series{s}); err != nil {
			t.Fatal(err)
		}
		t.Log("\n" + b.String())
		first, last := s.Points[0], s.Points[len(s.Points)-1]
		if last.Mops < 0.93*s.Published || last.Mops > 1.03*s.Published || first.Mops > s.Published/2 {
			t.Errorf("%s: %.2f Mops with one client, %.2f with 64, want %.2f at the end", s.Name, first.Mops, last.Mops, s.Published)
		}
		if last.Succeeded == 0 || last.Succeeded > last.Mops {
			t.Errorf("%s: %.2f Mops succeeded of %.2f", s.Name, last.Succeeded, last.Mops)
		}
		if replaced := s.load.Mode != ""; replaced != (last.Replaced > 0.99) || !replaced && last.Replaced > 0.01 {
			t.Errorf("%s: %.0f%% replaced", s.Name, 100*last.Replaced)
		}
	}
}

// The limit of a series is what its name says it is: double that figure of the model, and the series ends higher.
func TestLimitsAreWhatTheyAreCalled(t *testing.T) {
	for _, c := range []struct {
		name   string
		load   Load
		double func(*cost.Model)
	}{
		{"the word", Load{}, func(m *cost.Model) { m.NIC.Atomic.Word.Host *= 2 }},
		{"a core of the middlebox", Load{Mode: "hard"}, func(m *cost.Model) { m.Switch.Rewrite *= 2 }},
	} {
		c.load.Clients, c.load.Seed = 64, 1
		m := middlebox(t)
		before, err := c.load.Run(m)
		if err != nil {
			t.Fatal(err)
		}
		c.double(m)
		after, err := c.load.Run(m)
		if err != nil {
			t.Fatal(err)
		}
		if after.CAS < 1.7*before.CAS {
			t.Errorf("%s twice as fast: %.2f Mops, before %.2f", c.name, after.CAS/1e6, before.CAS/1e6)
		}
	}
}
