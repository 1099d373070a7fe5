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
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
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
	lending, times := make(map[string]bool), perf.Latencies{}
	for i, f := range l.Scene.Flows {
		r := &incastRun{rack: rack, until: incastReady.Add(span), to: l.Hosts[f.To], timeout: SenderTimeout}
		if !lending[r.to] {
			lending[r.to] = true
			r.lend()
		}
		flow := func(h *simrack.Host, ctx verbs.Context) error { return r.requests(h, ctx, i, RequestsOf(&l.Scene, &f)) }
		if f.Atomic {
			flow = func(h *simrack.Host, ctx verbs.Context) error { return r.timed(h, ctx, span/2, &times) }
		}
		start(rack, l.Hosts[f.From], fmt.Sprintf("flow%d", i), flow)
	}
	var samples [3]experiment.SceneSample
	for i := range samples {
		at := incastReady.Add(span/2 + time.Duration(i)*span/4 - time.Nanosecond)
		rack.At(at, func() { samples[i] = l.sample(rack, at) })
	}
	if err := run(ctx, rack); err != nil {
		return out, err
	}
	if out, err = l.Scene.Between(samples, queues.Config().Rate); err == nil && times.Count() > 0 {
		Timed(times.Summary(atomicBytes, times.Count()), &out)
	}
	return out, err
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

// Requests are the WRITEs or READs of a flow on a rack and in its twin: how long each is, in bytes, and how many are in
// flight.
type Requests struct {
	Bytes, Depth int
	Read         bool
}

// RequestsOf returns those of a flow without messages. Flows that say nothing have as much in flight as senders have.
func RequestsOf(s *experiment.Scene, f *experiment.SceneFlow) Requests {
	if s.Depth == 0 && f.Each == 0 {
		return Requests{SenderMessage, SenderDepth, f.Read}
	}
	return Requests{cmp.Or(f.Each, sceneMessage), cmp.Or(s.Depth, sceneDepth), f.Read}
}

// timed sends CMP_SWAPs, one at a time, after the first part of the run, and notes how long each takes.
func (r *incastRun) timed(h *simrack.Host, ctx verbs.Context, first time.Duration, times *perf.Latencies) error {
	l, err := lineTo{incastService, atomicBytes, 1, rdmacm.Params{PathMTU: verbs.MTU1024, Timeout: r.timeout, RdAtomic: 1}}.dial(h, ctx, r.rack.Host(r.to), incastReady)
	if err != nil {
		return err
	}
	l.rt.Sleep(incastReady.Add(first).Sub(l.rt.Now()))
	l.wr.Op = verbs.OpCmpSwap
	began := l.rt.Now()
	return l.repeat("client of CMP_SWAPs", atomicBytes, r.until, func(int) {
		now := l.rt.Now()
		times.Record(now.Sub(began))
		began = now
	})
}

// Timed puts the times of the messages of a flow into the result of its scene.
func Timed(l *perf.Latency, out *experiment.SceneResult) {
	const usec = 1e3
	out.Messages, out.Posted = l.Iters, l.Iters
	out.Mean, out.Tail = time.Duration(l.Average*usec), time.Duration(l.P99*usec)
}

// atomicBytes is the length of what an atomic answers.
const atomicBytes = 8

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
