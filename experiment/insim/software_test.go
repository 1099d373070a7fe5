package insim

import (
	"testing"

	"github.com/rdmalab/rdmalab/experiment"
)

// A program that repeats what UC loses sends each packet once without loss, 1/(1-p) times with it, and nothing that
// has arrived; a message without loss takes its packets' time and a round trip.
func TestSoftwareRecovery(t *testing.T) {
	measure := func(loss float64) experiment.SoftwareResult {
		l := experiment.SoftwareRecovery{Packets: 64, Messages: 100, Loss: loss}
		res, err := (&Sim{Cost: model(t, "connectx5")}).Recovery(t.Context(), experiment.Recovery{Software: l})
		if err != nil {
			t.Fatal(err)
		}
		return res.Software
	}
	clean := measure(0)
	if want := 64*clean.Gap + clean.Round; clean.Transmissions != 1 || (clean.Mean-want).Abs() > want/100 {
		t.Errorf("without loss %+v, want a mean of %v", clean, want)
	}
	lossy := measure(0.1)
	if x := lossy.Transmissions; x < 1.09 || x > 1.14 {
		t.Errorf("at 10 %% a packet is sent %.3f times, want 1.111", x)
	}
	if lossy.Mean < clean.Mean+lossy.RTO || lossy.Mean > clean.Mean+4*lossy.RTO {
		t.Errorf("at 10 %% a message takes %v, without loss %v", lossy.Mean, clean.Mean)
	}
}
