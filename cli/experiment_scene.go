package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/experiment/insim"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

// rackScene are flows on a rack in slow motion.
type rackScene struct {
	on    *rackPlatform
	scene experiment.Scene
	hosts []string // by the scene's numbers
	rate  int64    // of the ports
	timed timedFlow
}

// Scene runs flows on the rack, and then in the simulator with the rack's file.
func (p *rackPlatform) Scene(ctx context.Context, l experiment.Scene) (out experiment.SceneResult, err error) {
	model, err := slowRack{p, sceneRack}.ready(ctx)
	if err != nil {
		return out, err
	}
	r := &rackScene{on: p, scene: l}
	if err = r.cast(); err != nil {
		return out, err
	}
	r.scene.Span = cmp.Or(l.Span, sendersSpan/time.Duration(p.rack.Slow))
	if err := r.share(ctx); err != nil {
		return out, err
	}
	samples, err := r.measure(ctx)
	if err != nil {
		return out, err
	}
	if out, err = l.Between(samples, r.rate); err != nil {
		return out, err
	}
	if r.timed.times != nil {
		insim.Timed(r.timed.times, &out)
	}
	twin := insim.SceneTwin{Rack: p.rack, Cost: model, Hosts: r.hosts, Scene: r.scene}
	in, err := twin.Run(ctx)
	out.Twin = &in
	return out, err
}

// sceneRack is the rack file for scenes.
const sceneRack = "topo/racks/pfc-slow.yaml"

// share makes the switch move requests to host 0 of a scene whose clients share a connection.
func (r *rackScene) share(ctx context.Context) error {
	if r.scene.Share == "" {
		return nil // ready has taken the rule of a former scene away
	}
	rack := r.on.rack
	if c := rack.Congestion; c == nil || c.Algorithm == congestion.AlgorithmNone {
		return fmt.Errorf("rack %s has no congestion control (key congestion), by which clients of a connection slow down: bring up %s", rack.Name, experiment.SharedRack)
	}
	// A program that is loaded later leaves connections alone for a while, which is long in slow motion.
	if rack.Switch.Program != rackfile.ProgramSwordBox {
		return fmt.Errorf("the switch of rack %s has not begun with program %s, which moves requests: bring up %s", rack.Name, rackfile.ProgramSwordBox, experiment.SharedRack)
	}
	return r.on.box.set(ctx, &experiment.Switch{Action: experiment.Move}, r.hosts[:1], " "+r.scene.ShareKeys())
}

// measure runs the flows, and samples the switch's counters at the beginning, in the middle and at the end of the second
// half of the time in which all flows send.
func (r *rackScene) measure(ctx context.Context) (samples [3]experiment.SceneSample, err error) {
	flows := rackFlows{on: r.on, span: r.scene.Span}
	for _, f := range r.scene.Flows {
		if !f.Atomic {
			flows.list = append(flows.list, rackFlow{r.hosts[f.From], r.hosts[f.To], insim.RequestsOf(&r.scene, &f)})
		}
	}
	err = flows.run(ctx, func(ctx context.Context) (err error) {
		samples, err = r.observe(ctx, &flows)
		return err
	})
	return samples, err
}

func (r *rackScene) observe(ctx context.Context, flows *rackFlows) (samples [3]experiment.SceneSample, err error) {
	first, err := r.sample(ctx, time.Now())
	if err != nil {
		return samples, err
	}
	began, err := flows.allSend(ctx, func() (bool, error) {
		s, err := r.sample(ctx, time.Now())
		return err == nil && r.all(&first, &s), err
	})
	if err != nil {
		return samples, err
	}
	real := r.scene.Span * time.Duration(r.on.rack.Slow)
	for i := range samples {
		if err := pause(ctx, real/2+time.Duration(i)*real/4-time.Since(began)); err != nil {
			return samples, err
		}
		if i == 0 {
			r.timed.start(ctx, r)
		}
		if err := flows.going("before the measured time was over"); err != nil {
			return samples, err
		}
		if samples[i], err = r.sample(ctx, began); err != nil {
			return samples, err
		}
	}
	if err := r.timed.wait(); err != nil {
		return samples, err
	}
	return samples, flows.going("before the last time was taken")
}

// all reports whether the switch has, since a sample, as many messages of each host as it has flows. Flows of one host are
// not told apart.
func (r *rackScene) all(since, now *experiment.SceneSample) bool {
	of := make(map[int]uint64)
	for _, f := range r.scene.Flows {
		into := f.Into()
		if f.Atomic {
			continue
		}
		if of[f.From]++; !f.Read && now.Up[f.From]-since.Up[f.From] < of[f.From]*insim.SenderMessage || now.Down[into]-since.Down[into] < insim.SenderMessage {
			return false
		}
	}
	return true
}

// sample reads the switch's counters.
func (r *rackScene) sample(ctx context.Context, began time.Time) (s experiment.SceneSample, err error) {
	counters, queues, at, err := portsOf(ctx, r.on.rack.Name)
	if err != nil {
		return s, err
	}
	if r.rate = queues.Rate; r.rate == 0 {
		return s, errNoQueues
	}
	s.At = at.Sub(began) / time.Duration(r.on.rack.Slow)
	for _, host := range r.hosts {
		in := slices.IndexFunc(counters.Ports, func(p switchd.PortCounters) bool { return p.Host == host })
		out := slices.IndexFunc(queues.Ports, func(p switchd.PortQueues) bool { return p.Host == host })
		if in < 0 || out < 0 {
			return s, fmt.Errorf("the switch has no port of %s", host)
		}
		s.Up = append(s.Up, counters.Ports[in].RxBytes+counters.Ports[in].RxPackets*portqueue.Overhead)
		var down uint64
		for _, q := range queues.Ports[out].Priorities {
			down += q.TxBytes + q.TxPackets*portqueue.Overhead
			s.Pauses, s.Dropped = s.Pauses+q.TxPause, s.Dropped+q.Dropped
		}
		s.Down = append(s.Down, down)
	}
	return s, nil
}

// portsOf reads the counters and the queues of the ports of a rack's switch, and returns when the queues were read.
func portsOf(ctx context.Context, rack string) (counters switchd.Counters, queues switchd.Queues, at time.Time, err error) {
	box := boxOf(rack)
	if err := ask(ctx, box, rackfile.SwitchName, http.MethodGet, "/counters", nil, &counters); err != nil {
		return counters, queues, at, err
	}
	asked := time.Now()
	err = ask(ctx, box, rackfile.SwitchName, http.MethodGet, "/queues", nil, &queues)
	return counters, queues, asked.Add(time.Since(asked) / 2), err
}
