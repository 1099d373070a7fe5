package experiment

import (
	"context"
	"strings"
	"testing"
)

// lossyRack is a rack that has a share of the simulator's goodput.
type lossyRack struct {
	Platform
	share  float64
	little bool // there is little to have
}

func (*lossyRack) On() string       { return OnRack }
func (*lossyRack) Describe() string { return "fake" }

func (p *lossyRack) Recovery(_ context.Context, l Recovery) (RecoveryResult, error) {
	sim := 1 - 5*l.Loss
	if p.little {
		sim = 0.05
	}
	return RecoveryResult{Goodput: p.share * sim, Twin: &RecoveryResult{Goodput: sim}}, nil
}

// A rack that is farther from the simulator than the line says fails, and with much loss there are fewer messages.
func TestLossOnARack(t *testing.T) {
	for _, c := range []struct {
		share float64
		holds bool
	}{{1, true}, {0.91, true}, {0.89, false}, {1.11, false}} {
		b := &lossBody{messages: 1000}
		if err := b.Check(Place{On: OnRack, Hosts: 1}); err != nil {
			t.Fatal(err)
		}
		p := &lossyRack{share: c.share}
		r := lossRecovery.Report(p)
		if err := b.Run(t.Context(), p, r); err != nil {
			t.Fatal(err)
		}
		if failed := r.Err() != nil; failed == c.holds || len(r.Rows) != len(rackLosses) {
			t.Errorf("%v: failed: %v, %d rows", c.share, failed, len(r.Rows))
		}
		if !strings.HasPrefix(r.Summary[0], "L2: go-back-n at a loss of 0.00 %") {
			t.Error(r.Summary[0])
		}
	}
	for share, holds := range map[float64]bool{0.75: true, 0.65: false} { // of 0.05 of the link
		r := lossRecovery.Report(&lossyRack{})
		b := &lossBody{messages: 1000}
		if err := b.onRack(t.Context(), &lossyRack{share: share, little: true}, r); err != nil || (r.Err() == nil) != holds {
			t.Errorf("%v of a little: %v, %v", share, err, r.Err())
		}
	}
	b := &lossBody{messages: 1000}
	if few := b.rackPoints()[4].Messages; few != 200 {
		t.Errorf("%d messages", few)
	}
}
