package insim

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
)

func solo(t *testing.T, l experiment.OneRMA) experiment.OneRMAResult {
	t.Helper()
	out, err := new(Sim).OneRMA(t.Context(), l)
	if err != nil {
		t.Fatalf("%+v: %v", l, err)
	}
	return out
}

// The shapes of the paper's figures 10, 12, 15 and 16.
func TestShapesOfOneRMA(t *testing.T) {
	random := func(load float64) experiment.OneRMAResult {
		return solo(t, experiment.OneRMA{Kind: experiment.SoloRandom, Hosts: 8, First: 15, Load: load, Span: 400 * time.Microsecond})
	}
	if low, high := random(0.1), random(0.7); low.Median < 0.8 || low.Median > 1.1 || high.Median > 2 || high.P99 < low.P99 {
		t.Errorf("random traffic: %+v, %+v", low, high)
	}
	beside := func(large int) experiment.OneRMAResult {
		return solo(t, experiment.OneRMA{Kind: experiment.SoloBeside, Large: large, First: 15, Span: 4 * time.Millisecond})
	}
	if alone, bulk := beside(0), beside(1<<20); alone.Median > 0.9 || bulk.P99 > alone.P99+1.5 {
		t.Errorf("small READs: %+v alone, %+v beside a transfer of 17 round trips", alone, bulk)
	}
	if r := solo(t, experiment.OneRMA{Kind: experiment.SoloRamp, First: 15}); r.Ramp < 2 || r.Ramp > 8 || r.Fair < 5 || r.Fair > 20 {
		t.Errorf("convergence from a window of 15: %+v", r)
	}
	demand := func(l experiment.OneRMA) experiment.OneRMAResult {
		l.Kind, l.Load, l.Span = experiment.SoloDemand, 1, time.Millisecond
		return solo(t, l)
	}
	var last float64
	for _, kb := range []int{48, 64, 96} {
		calm := demand(experiment.OneRMA{Hosts: 1, Window: kb << 10})
		jitter := demand(experiment.OneRMA{Hosts: 1, Window: kb << 10, Jitter: 4 * time.Microsecond})
		if jitter.Goodput <= last || jitter.Goodput > 0.9*calm.Goodput || jitter.Dispatch < 0.9*jitter.Retried {
			t.Errorf("window %d KB: %+v, with jitter %+v", kb, calm, jitter)
		}
		last = jitter.Goodput
	}
	low, fits, high := demand(experiment.OneRMA{Hosts: 2, Window: 1 << 20, Threshold: 8 << 10}), demand(experiment.OneRMA{Hosts: 2, Window: 1 << 20, Threshold: 62 << 10}),
		demand(experiment.OneRMA{Hosts: 2, Window: 1 << 20, Threshold: 500 << 10})
	if low.Goodput < 0.85 || fits.Goodput < 0.9 || high.Goodput > 0.2 || low.Median >= fits.Median || low.Retried < fits.Retried {
		t.Errorf("threshold: %+v, %+v, %+v", low, fits, high)
	}
}

// A load that is not known, and one that is cancelled, are errors.
func TestOneRMAEnds(t *testing.T) {
	if _, err := new(Sim).OneRMA(t.Context(), experiment.OneRMA{Kind: "x"}); err == nil {
		t.Error("an unknown load was run")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := new(Sim).OneRMA(ctx, experiment.OneRMA{Kind: experiment.SoloRamp, First: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled load: %v", err)
	}
}
