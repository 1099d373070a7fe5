package experiment

import (
	"math"
	"slices"
	"testing"
	"time"
)

// The victim of figure victim is alone at its receiver, so its share is what left that port; the other flow of its host
// has the rest of what came from the host, and three flows of one host to one receiver have a third each.
func TestSharesByPorts(t *testing.T) {
	s := Scene{Hosts: 4, Flows: []SceneFlow{{From: 0, To: 2}, {From: 0, To: 1}, {From: 3, To: 1}, {From: 3, To: 1}}}
	at := func(ms, quarter uint64) SceneSample {
		return SceneSample{
			At: time.Duration(ms) * time.Millisecond, Up: []uint64{900_000 * quarter, 0, 0, 600_000 * quarter}, Down: []uint64{0, 1_000_000 * quarter, 500_000 * quarter, 0},
			Pauses: 7 * quarter, Dropped: 3 * quarter,
		}
	}
	samples := [3]SceneSample{at(10, 1), at(11, 2), at(12, 3)}
	out, err := s.Between(samples, 8_000_000_000) // 1,000,000 bytes a ms
	if err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(out.Shares, []float64{0.5, 0.4, 0.3, 0.3}, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) || out.Unsteady != 0 || math.Abs(out.Carried-1.5) > 1e-9 || out.Pauses != 14 || out.Dropped != 6 {
		t.Errorf("%+v", out)
	}
	samples[2].Down[1] += 100_000
	if out, err = s.Between(samples, 8_000_000_000); err != nil || math.Abs(out.Unsteady-1./15) > 1e-9 {
		t.Errorf("%+v, %v", out, err)
	}
	if _, err := s.Between([3]SceneSample{at(10, 1), at(10, 1), at(12, 3)}, 8_000_000_000); err == nil {
		t.Error("two samples of one time are no measurement")
	}
}

// A number of the rack that is not the simulator's within 10 % is told, and also a number that is missing.
func TestRackDemands(t *testing.T) {
	of := func(rack, sim float64) (met int) {
		for _, d := range congestionRackDemands {
			if d.met(func(_, series, _ string) float64 {
				if series == twinOnRack {
					return rack
				}
				return sim
			}) {
				met++
			}
		}
		return met
	}
	// One demand is that nothing is dropped where the simulator drops nothing.
	all := len(congestionRackDemands)
	for _, c := range []struct {
		rack, sim float64
		met       int
	}{{0.55, 0.51, all}, {0.46, 0.5, all}, {0.56, 0.5, 1}, {0.44, 0.5, 1}, {math.NaN(), 0.5, 1}, {0.5, math.NaN(), 0}, {0, 0, 1}, {3, 0, 0}} {
		if n := of(c.rack, c.sim); n != c.met || all < 16 {
			t.Errorf("rack %v, simulator %v: %d of %d demands are met, want %d", c.rack, c.sim, n, all, c.met)
		}
	}
}
