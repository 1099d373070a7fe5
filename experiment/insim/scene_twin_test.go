package insim

import (
	"math"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
)

// The rack file of figure unfair in the simulator: with PFC alone the flow that is alone at its port has half of the link,
// the other three a sixth each; with DCQCN all have the same, and pauses are rare.
func TestSceneOfARackFile(t *testing.T) {
	run := func(algorithm string) experiment.SceneResult {
		spec, model := slowFile(t, "pfc-slow.yaml")
		for i := range spec.Hosts {
			spec.Hosts[i].Congestion.Algorithm = algorithm
		}
		flows := []experiment.SceneFlow{{From: 0, To: 2}, {From: 1, To: 2}, {From: 1, To: 2}, {From: 1, To: 2}}
		l := SceneTwin{
			Rack: spec, Cost: model, Hosts: []string{"cn0", "cn1", "ms0"},
			Scene: experiment.Scene{Hosts: 3, Flows: flows, Span: 40 * time.Millisecond, Seed: 1},
		}
		out, err := l.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	alone, dcqcn := run(congestion.AlgorithmNone), run(congestion.AlgorithmDCQCN)
	if math.Abs(alone.Shares[0]-0.5) > 0.02 || math.Abs(alone.Shares[2]-1./6) > 0.01 || alone.Unsteady > 0.01 || alone.Pauses == 0 || alone.Dropped != 0 {
		t.Errorf("PFC alone: %+v", alone)
	}
	if math.Abs(dcqcn.Shares[0]-0.25) > 0.05 || 20*dcqcn.Pauses > alone.Pauses || dcqcn.Dropped != 0 {
		t.Errorf("dcqcn: %+v", dcqcn)
	}
}
