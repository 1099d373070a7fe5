package insim

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/softrnic/fault"
)

// A victim of PFC has less if pauses and their ends reach the senders late by random times, as on a rack in slow motion whose
// processes wait for a processor: 4 us there are 1.6 ms of the machine. docs/papers/congestion.md names these shares.
func TestVictimOfLatePauses(t *testing.T) {
	share := func(late time.Duration) float64 {
		spec, model := slowFile(t, "pfc-slow.yaml")
		hosts := []string{"cn0", "ms1", "ms0", "cn1"}
		for _, h := range hosts {
			if h[:2] == "cn" && late > 0 {
				spec.Faults = append(spec.Faults, fault.Rule{ID: h, Link: h, Kind: fault.Delay, Dir: fault.Down, Probability: 1, Delay: late, Jitter: late})
			}
		}
		l := SceneTwin{Rack: spec, Cost: model, Hosts: hosts, Scene: experiment.Scene{
			Hosts: 4, Flows: []experiment.SceneFlow{{From: 0, To: 1}, {From: 0, To: 2}, {From: 3, To: 2}}, Span: 40 * time.Millisecond, Seed: 1,
		}}
		out, err := l.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return out.Shares[0]
	}
	if at, late := share(0), share(4*time.Microsecond); at < 0.37 || at > 0.39 || late < 0.28 || late > 0.34 {
		t.Errorf("the victim beside one host has %.3f of the link, and %.3f with late pauses", at, late)
	}
}
