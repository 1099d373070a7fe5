package cli

import (
	"context"
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/perf"
)

// timedFlow is the flow of a scene of which each message is timed. times is nil if there is none.
type timedFlow struct {
	times *perf.Latency
	ended chan error
}

// start starts the flow, for the measured half of its scene.
func (t *timedFlow) start(ctx context.Context, r *rackScene) {
	for _, f := range r.scene.Flows {
		if !f.Atomic {
			continue
		}
		from := r.hosts[f.From]
		flow := rackFlow{from: from, to: r.hosts[f.To]}
		cfg := flow.test(r.scene.Span / 2)
		cfg.Test, cfg.Type = perf.AtomicLat, "cas"
		t.ended = make(chan error, 1)
		go func() {
			res, err := r.on.perf(ctx, from, cfg)
			if err == nil && res.Lat == nil {
				err = errors.New("the result of the test has no latency")
			}
			if err == nil {
				t.times = res.Lat
			}
			t.ended <- withNode(err, from)
		}()
	}
}

// wait waits until the flow has ended.
func (t *timedFlow) wait() error {
	if t.ended == nil {
		return nil
	}
	return <-t.ended
}
