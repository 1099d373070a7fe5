package insim

import (
	"context"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// SceneTwin is a Scene between hosts of a rack file: its flows WRITE as Senders do, over links and queues of the file.
type SceneTwin struct {
	Rack *rackfile.Rack
	// Cost is the cost model of the rack's NICs, links and switch.
	Cost *cost.Model
	// Hosts are the names of the scene's hosts, by their numbers.
	Hosts []string
	Scene experiment.Scene
}

// Run runs the flows for Scene.Span, and measures the second half of it.
func (l *SceneTwin) Run(ctx context.Context) (out experiment.SceneResult, err error) {
	span := l.Scene.Span
	rack, err := simrack.New(l.Rack, simrack.Options{Seed: l.Scene.Seed, Cost: l.Cost, MaxEvents: mostEvents(span), Cancelled: cancelled(ctx)})
	if err != nil {
		return out, err
	}
	defer rack.Close()
	queues := rack.Queues()
	if queues == nil || queues.Config().Rate == 0 {
		return out, errNoPortRate
	}
	lending := make(map[string]bool)
	for i, f := range l.Scene.Flows {
		r := &incastRun{rack: rack, until: incastReady.Add(span), to: l.Hosts[f.To], timeout: SenderTimeout}
		if !lending[r.to] {
			lending[r.to] = true
			r.lend()
		}
		start(rack, l.Hosts[f.From], fmt.Sprintf("flow%d", i), func(h *simrack.Host, ctx verbs.Context) error { return r.sender(h, ctx, i) })
	}
	var samples [3]experiment.SceneSample
	for i := range samples {
		at := incastReady.Add(span/2 + time.Duration(i)*span/4 - time.Nanosecond)
		rack.At(at, func() { samples[i] = l.sample(rack, at) })
	}
	if err := run(ctx, rack); err != nil {
		return out, err
	}
	return l.Scene.Between(samples, queues.Config().Rate)
}

func (l *SceneTwin) sample(rack *simrack.Rack, now clock.Time) experiment.SceneSample {
	s := experiment.SceneSample{At: now.Sub(incastReady)}
	for _, name := range l.Hosts {
		in := rack.Host(name).Ingress()
		s.Up = append(s.Up, in.RxBytes+in.RxPackets*portqueue.Overhead)
		_, port, _ := l.Rack.Host(name)
		var down uint64
		for _, p := range rack.Queues().Port(now, port) {
			down += p.TxBytes + p.TxPackets*portqueue.Overhead
			s.Pauses, s.Dropped = s.Pauses+p.TxPause, s.Dropped+p.Dropped
		}
		s.Down = append(s.Down, down)
	}
	return s
}
