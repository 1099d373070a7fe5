package insim

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
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
	spec, err := l.spec()
	if err != nil {
		return out, err
	}
	rack, err := simrack.New(spec, simrack.Options{Seed: l.Scene.Seed, Cost: l.Cost, MaxEvents: mostEvents(span), Cancelled: cancelled(ctx)})
	if err != nil {
		return out, err
	}
	defer rack.Close()
	queues := rack.Queues(0)
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
		w := WritesOf(&l.Scene, &f)
		start(rack, l.Hosts[f.From], fmt.Sprintf("flow%d", i), func(h *simrack.Host, ctx verbs.Context) error { return r.writes(h, ctx, i, w) })
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

// spec returns the rack, whose switch moves requests to host 0 of a scene whose clients share a connection.
func (l *SceneTwin) spec() (*rackfile.Rack, error) {
	if l.Scene.Share == "" {
		return l.Rack, nil
	}
	rule, err := rules.Parse(fmt.Sprintf("server=%s action=%s service=%s %s", l.Hosts[0], experiment.Move, sceneSwitch, l.Scene.ShareKeys()))
	if err != nil {
		return nil, err
	}
	if err := rule.Resolve(l.Rack.Addresses); err != nil {
		return nil, err
	}
	set, err := rules.NewSet([]rules.Rule{rule})
	if err != nil {
		return nil, err
	}
	spec := *l.Rack
	spec.Switch.Program, spec.Switch.Rules = rackfile.ProgramSwordBox, set.All()
	return &spec, nil
}

// Writes are the WRITEs of a flow on a rack and in its twin: how long each is, in bytes, and how many are in flight.
type Writes struct{ Bytes, Depth int }

// WritesOf returns those of a flow without messages. Flows that say nothing have as much in flight as senders have.
func WritesOf(s *experiment.Scene, f *experiment.SceneFlow) Writes {
	if s.Depth == 0 && f.Each == 0 {
		return Writes{SenderMessage, SenderDepth}
	}
	return Writes{cmp.Or(f.Each, sceneMessage), cmp.Or(s.Depth, sceneDepth)}
}

func (l *SceneTwin) sample(rack *simrack.Rack, now clock.Time) experiment.SceneSample {
	s := experiment.SceneSample{At: now.Sub(incastReady)}
	for _, name := range l.Hosts {
		in := rack.Host(name).Ingress()
		s.Up = append(s.Up, in.RxBytes+in.RxPackets*portqueue.Overhead)
		_, port, _ := l.Rack.Host(name)
		var down uint64
		for _, p := range rack.Queues(0).Port(now, port) {
			down += p.TxBytes + p.TxPackets*portqueue.Overhead
			s.Pauses, s.Dropped = s.Pauses+p.TxPause, s.Dropped+p.Dropped
		}
		s.Down = append(s.Down, down)
	}
	return s
}
