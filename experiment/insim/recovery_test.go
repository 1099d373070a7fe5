package insim

import (
	"context"
	"os"
	"testing"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/selective"
)

// At a loss of 1 %, goodput is in the order go-back-N, IRN, RACK, and near that of a model of one
// queue pair. Packets that overtake each other make IRN send packets again, and RACK hardly any.
func TestRecoveryGoodput(t *testing.T) {
	measure := func(l experiment.Recovery) experiment.RecoveryResult {
		l.Messages = 150
		res, err := (&Sim{Cost: model(t, "connectx5")}).Recovery(context.Background(), l)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	const bdp = experiment.BDP
	back := measure(experiment.Recovery{Kind: selective.GoBackN, Window: bdp, Loss: 0.01})
	irn := measure(experiment.Recovery{Kind: selective.IRN, Window: 2 * bdp, Loss: 0.01})
	rack := measure(experiment.Recovery{Kind: selective.RACK, Window: bdp, Loss: 0.01, BothWays: true})
	if back.Goodput > 0.45 || irn.Goodput < 0.75 || rack.Goodput < 0.93 {
		t.Errorf("at 1 %%: go-back-n %.3f, irn %.3f, rack %.3f", back.Goodput, irn.Goodput, rack.Goodput)
	}
	if rack.Transmissions > 1.03 || irn.Transmissions > 1.03 || back.Transmissions < 1.5 {
		t.Errorf("at 1 %%: go-back-n sends a packet %.3f times, irn %.3f, rack %.3f", back.Transmissions, irn.Transmissions, rack.Transmissions)
	}
	back = measure(experiment.Recovery{Kind: selective.GoBackN, Window: 2 * bdp, Late: 64})
	irn = measure(experiment.Recovery{Kind: selective.IRN, Window: 2 * bdp, Late: 64})
	rack = measure(experiment.Recovery{Kind: selective.RACK, Window: 2 * bdp, Late: 64})
	if rack.Goodput < 0.9 || rack.Transmissions > 1.01 || irn.Transmissions < 1.3 || back.Goodput > 0.2 {
		t.Errorf("late by up to 64: go-back-n %.3f, irn %.3f (%.3f times), rack %.3f (%.3f times)", back.Goodput, irn.Goodput, irn.Transmissions, rack.Goodput, rack.Transmissions)
	}
}

// The goodput over the links of a rack file: all that the way can carry without loss, and with it less, the more so with
// go-back-N.
func TestRecoveryOfARackFile(t *testing.T) {
	data, err := os.ReadFile("../../topo/racks/loss-slow.yaml")
	if err != nil {
		t.Fatal(err)
	}
	run := func(recovery string, loss float64) experiment.RecoveryResult {
		spec, err := rackfile.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		for i := range spec.Hosts {
			spec.Hosts[i].Recovery = recovery
		}
		twin := RecoveryTwin{Rack: spec, Cost: model(t, spec.Cost), From: "cn0", To: "ms0"}
		out, err := twin.Run(t.Context(), experiment.Recovery{Loss: loss, Messages: 200, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	none, back, rack := run("irn", 0), run("go-back-n", 0.01), run("rack", 0.01)
	if none.Goodput < 0.97 || none.Goodput > 1 || none.Transmissions != 1 || back.Goodput > 0.5 || rack.Goodput < 0.93 || rack.Transmissions < 1.005 || rack.Transmissions > 1.02 {
		t.Errorf("no loss %+v, go-back-n %+v, rack %+v", none, back, rack)
	}
}
