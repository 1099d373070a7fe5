package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/experiment/insim"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/costs"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

// rackScene are flows on a rack in slow motion.
type rackScene struct {
	on    *rackPlatform
	scene experiment.Scene
	hosts []string // by the scene's numbers
	rate  int64    // of the ports
}

// Scene runs flows on the rack, and then in the simulator with the rack's file.
func (p *rackPlatform) Scene(ctx context.Context, l experiment.Scene) (out experiment.SceneResult, err error) {
	if p.rack.Slow == 0 {
		return out, fmt.Errorf("rack %s is not in slow motion, and would measure the speed of this machine: bring up %s", p.rack.Name, sceneRack)
	}
	if err := errors.Join(p.noStores(), p.box.set(ctx, &experiment.Switch{}, nil, "")); err != nil {
		return out, err
	}
	r := &rackScene{on: p, scene: l}
	if err = r.cast(); err != nil {
		return out, err
	}
	r.scene.Span = cmp.Or(l.Span, sendersSpan/time.Duration(p.rack.Slow))
	samples, err := r.measure(ctx)
	if err != nil {
		return out, err
	}
	if out, err = l.Between(samples, r.rate); err != nil {
		return out, err
	}
	model, err := costs.Builtin(p.rack.Cost)
	if err != nil {
		return out, err
	}
	twin := insim.SceneTwin{Rack: p.rack, Cost: model, Hosts: r.hosts, Scene: r.scene}
	in, err := twin.Run(ctx)
	out.Twin = &in
	return out, err
}

// sceneRack is the rack file for scenes.
const sceneRack = "topo/racks/pfc-slow.yaml"

// cast gives the hosts of the scene names: those that receive are memory servers, the others compute hosts.
func (r *rackScene) cast() error {
	rack := r.on.rack
	memory, err := rack.NamesByRole(rackfile.Memory)
	if err != nil {
		return err
	}
	compute, receives := slices.Clone(r.on.hosts), make([]bool, r.scene.Hosts)
	for _, f := range r.scene.Flows {
		receives[f.To] = true
	}
	r.hosts = make([]string, r.scene.Hosts)
	for i := range r.hosts {
		list, role := &compute, "compute hosts"
		if receives[i] {
			list, role = &memory, "memory servers"
		}
		if len(*list) == 0 {
			return fmt.Errorf("rack %s has too few %s for these flows: bring up %s", rack.Name, role, sceneRack)
		}
		r.hosts[i], *list = (*list)[0], (*list)[1:]
	}
	return nil
}

// measure runs the flows, and samples the switch's counters at the beginning, in the middle and at the end of the second
// half of the time in which all flows send.
func (r *rackScene) measure(ctx context.Context) (samples [3]experiment.SceneSample, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		hosts := make([]string, len(r.scene.Flows))
		for i, f := range r.scene.Flows {
			hosts[i] = r.hosts[f.From]
		}
		ended <- atOnce(hosts, func(i int, host string) error {
			_, err := r.on.perf(ctx, host, &perf.Config{
				Test: perf.WriteBW, Size: insim.SenderMessage, Depth: insim.SenderDepth, To: r.hosts[r.scene.Flows[i].To],
				OneWord: perf.OneWord{Span: sendersSpare * r.scene.Span}, Path: perf.Path{MTU: senderMTU, Timeout: insim.SenderTimeout},
			})
			return withNode(err, host)
		})
	}()
	samples, err = r.observe(ctx, ended)
	if ctx.Err() != nil {
		return samples, errInterrupted
	}
	stop()
	if err == nil {
		late := <-ended
		_ = late // of an end in the middle there is nothing to tell
	}
	return samples, err
}

func (r *rackScene) observe(ctx context.Context, ended <-chan error) (samples [3]experiment.SceneSample, err error) {
	began, err := r.allSend(ctx, ended)
	if err != nil {
		return samples, err
	}
	real := r.scene.Span * time.Duration(r.on.rack.Slow)
	for i := range samples {
		if err := pause(ctx, real/2+time.Duration(i)*real/4-time.Since(began)); err != nil {
			return samples, err
		}
		select {
		case err := <-ended:
			return samples, cmp.Or(err, errors.New("flows have ended before the measured time was over"))
		default:
		}
		if samples[i], err = r.sample(ctx, began); err != nil {
			return samples, err
		}
	}
	return samples, nil
}

// allSend waits until the switch has as many messages of each host as it has flows, and returns when that was. Flows of one
// host are not told apart.
func (r *rackScene) allSend(ctx context.Context, ended <-chan error) (began time.Time, err error) {
	first, err := r.sample(ctx, time.Now())
	if err != nil {
		return began, err
	}
	for limit := time.Now().Add(sendersSetup); time.Now().Before(limit); {
		s, err := r.sample(ctx, time.Now())
		if err != nil {
			return began, err
		}
		all, of := true, make(map[int]uint64)
		for _, f := range r.scene.Flows {
			of[f.From]++
			all = all && s.Up[f.From]-first.Up[f.From] >= of[f.From]*insim.SenderMessage && s.Down[f.To]-first.Down[f.To] >= insim.SenderMessage
		}
		if all {
			return time.Now(), nil
		}
		select {
		case err := <-ended:
			return began, cmp.Or(err, errors.New("the flows have ended at once"))
		case <-time.After(sendersSample):
		}
	}
	return began, fmt.Errorf("after %v not all hosts send: this machine is too busy for this factor of slow motion", sendersSetup)
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
	box := control.NewClient(rackfile.PathsOf(rack).Socket(rackfile.SwitchName))
	if err := ask(ctx, box, rackfile.SwitchName, http.MethodGet, "/counters", nil, &counters); err != nil {
		return counters, queues, at, err
	}
	asked := time.Now()
	err = ask(ctx, box, rackfile.SwitchName, http.MethodGet, "/queues", nil, &queues)
	return counters, queues, asked.Add(time.Since(asked) / 2), err
}
