package experiment

import (
	"math"
	"testing"
	"time"
)

// What a host READs is what came to its port, without what others WRITE to it; its own packets are requests.
func TestSharesOfReads(t *testing.T) {
	s := Scene{Hosts: 4, Flows: []SceneFlow{{From: 1, To: 0, Read: true}, {From: 2, To: 0, Read: true}, {From: 3, To: 1}}}
	at := func(n uint64) SceneSample {
		return SceneSample{At: time.Duration(n) * time.Millisecond, Up: []uint64{500_000 * n, 9_000 * n, 9_000 * n, 300_000 * n}, Down: []uint64{18_000 * n, 500_000 * n, 200_000 * n, 0}}
	}
	out, err := s.Between([3]SceneSample{at(1), at(2), at(3)}, 8_000_000_000) // 1,000,000 bytes a ms
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{0.2, 0.2, 0.3} {
		if math.Abs(out.Shares[i]-want) > 1e-9 {
			t.Errorf("flow %d has %.3f of the link, want %.3f", i, out.Shares[i], want)
		}
	}
	if math.Abs(out.Carried-0.7) > 1e-9 || out.Unsteady != 0 {
		t.Errorf("the ports of the receivers carry %.3f, unsteady %.3f, want 0.7 and 0", out.Carried, out.Unsteady)
	}
}

// The demands of a rack alone: each fails by the number that it is about.
func TestWaitsRackDemands(t *testing.T) {
	good := map[string]float64{
		"atomics " + casP99 + ccIdle: 5, "atomics " + casP99 + ccApart: 9, "atomics " + casP99 + ccSame: 11,
		"reads each other client0": 0.25, "reads each other client1": 0.24, "reads each other client4": 0.30,
	}
	met := func() (n int) {
		for _, d := range waitsRackDemands {
			if d.met(func(p, series, x string) float64 {
				if series != twinOnRack {
					return math.NaN()
				}
				return good[d.figure+" "+p+x]
			}) {
				n++
			}
		}
		return n
	}
	if n := met(); n != len(waitsRackDemands) {
		t.Fatalf("%d of %d demands are met", n, len(waitsRackDemands))
	}
	for key, bad := range map[string]float64{"atomics " + casP99 + ccApart: 10.1, "atomics " + casP99 + ccSame: 9.9, "reads each other client4": 0.23} {
		was := good[key]
		good[key] = bad
		if n := met(); n != len(waitsRackDemands)-1 {
			t.Errorf("%s is %v: %d demands are met", key, bad, n)
		}
		good[key] = was
	}
}
