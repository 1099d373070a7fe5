package scenario

import (
	"strings"
	"testing"
)

// Scenarios hold over several switches whose trunks are cut; some seeds cut the only path of a leaf. A seed
// gives the same run again.
func TestOverAFabric(t *testing.T) {
	cuts := 0
	for _, name := range fabricScenarios {
		for _, text := range []string{"2x2", "3x1", "4x0"} {
			s, err := mustFind(t, name).Over(text)
			if err != nil {
				t.Fatal(err)
			}
			for seed := range uint64(3) {
				r := s.Run(seed+1, Options{Hash: true})
				if r.Err != nil {
					t.Errorf("%s: %v", s.Args(seed+1), r.Err)
				}
				if strings.Contains(r.Plan, " cut leaf") {
					cuts++
				}
				if again := s.Run(seed+1, Options{Hash: true}); again.Hash != r.Hash {
					t.Errorf("%s: another run", s.Args(seed+1))
				}
				if !strings.HasSuffix(s.Args(seed+1), " --fabric "+text) {
					t.Error(s.Args(seed + 1))
				}
			}
		}
	}
	if cuts < 20 {
		t.Errorf("%d runs with a cut", cuts)
	}
}

func TestNoFabric(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"clover", "2", "write leaves x spines"},
		{"clover", "2x2x2", "write leaves x spines"},
		{"clover", "1x1", "2 to 16 leaves"},
		{"clover", "17x1", "2 to 16 leaves"},
		{"clover", "2x9", "0 to 8 spines"},
		{"clover", "2x-1", "0 to 8 spines"},
		{"locks", "2x2", "needs one switch"},
		{"buffer", "2x2", "needs one switch"},
	} {
		if _, err := mustFind(t, c.name).Over(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s over %s: %v, want %q", c.name, c.text, err, c.want)
		}
	}
	if s, err := mustFind(t, "locks").Over(""); err != nil || strings.Contains(s.Args(1), "fabric") {
		t.Errorf("%v: %s", err, s.Args(1))
	}
	steered, err := mustFind(t, "clover").Vary(Params{Steer: "write"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := steered.Over("2x2"); err == nil {
		t.Error("a switch that steers runs over a fabric")
	}
}
