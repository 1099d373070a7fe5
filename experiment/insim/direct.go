package insim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
	"github.com/rdmalab/rdmalab/store/pdpm"
)

// directRun is a load of pDPM-Direct or pDPM-Central in progress.
type directRun struct {
	workload
	cores   int // cores of the coordinator of pDPM-Central; 0 means pDPM-Direct
	model   *cost.Model
	shape   pdpm.Shape
	servers []netip.Addr
	ready   bool // true when all keys are loaded
}

// Direct runs clients of pDPM-Direct or pDPM-Central. Their programs take as much time as those of
// Clover's clients. The switch keeps up with every load.
func (p *Sim) Direct(ctx context.Context, l experiment.Direct) (experiment.StoreResult, error) {
	r := &directRun{cores: l.Central, model: p.model(&experiment.Switch{LineRate: true}), shape: pdpm.Shape{Value: l.Value, Entries: int(4 * l.Keys)}}
	var err error
	if r.rack, err = newRack(ctx, fmt.Sprintf(rackFile, l.Servers-1, machines-1), simrack.Options{Cost: r.model}); err != nil {
		return experiment.StoreResult{}, err
	}
	defer r.rack.Close()
	for i := range l.Servers {
		r.servers = append(r.servers, serveMemory(r.rack, i, memservice.Config{Region: r.shape.Need()}))
	}
	r.cfg = kv.RunConfig{
		Workload: l.Workload, Keys: l.Keys, Value: l.Value, Zipf: l.Zipf, Clients: l.Clients, Warmup: cmp.Or(l.Warm, indexWarmUp),
		Duration: cmp.Or(l.Run, indexRunTime), Patience: time.Second, Verify: true,
	}
	start(r.rack, "cn0", "load", r.fill)
	startClients(r.rack, l.Clients, machines, r.client)
	return r.measure(ctx, indexWarm)
}

func (r *directRun) config(h *simrack.Host, ctx verbs.Context) passive.Config {
	return passive.Config{Context: ctx, Manager: h.Manager(ctx), Servers: r.servers}
}

// fill makes the table, starts the coordinator of pDPM-Central, and loads the keys.
func (r *directRun) fill(h *simrack.Host, ctx verbs.Context) error {
	format := pdpm.Format
	if r.cores > 0 {
		format = pdpm.FormatCentral
	}
	if _, err := format(r.config(h, ctx), r.shape, indexReady); err != nil {
		return err
	}
	if r.cores > 0 {
		r.coordinate()
	}
	c, err := r.open(h, ctx, indexReady)
	if err != nil {
		return err
	}
	for key := range r.cfg.Keys {
		if err := c.Insert(key, kv.MakeValue(key, key, r.cfg.Value)[:r.cfg.Value], indexReady); err != nil {
			return errors.Join(err, c.Close())
		}
	}
	r.ready = true
	return c.Close()
}

func (r *directRun) open(h *simrack.Host, ctx verbs.Context, deadline clock.Time) (kv.Store, error) {
	if r.cores == 0 {
		return pdpm.Open(r.config(h, ctx), deadline)
	}
	cfg := pdpm.CentralConfig{Context: ctx, Manager: h.Manager(ctx), Coordinators: []netip.Addr{r.rack.Host("md0").Addr()}}
	return pdpm.OpenCentral(cfg, deadline)
}

// coordinate starts the coordinator of pDPM-Central. A request occupies one of its cores as long as
// a request to Clover's metadata server occupies a thread.
func (r *directRun) coordinate() {
	md := r.rack.Host("md0")
	md.Go("coordinator", true, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		free := make([]clock.Time, r.cores) // when each core is free
		c, err := pdpm.NewCoordinator(pdpm.CoordinatorConfig{
			Config: passive.Config{Context: ctx, Servers: r.servers}, Manager: md.Manager(ctx),
			Pace: func() {
				core := slices.Index(free, slices.Min(free))
				free[core] = max(free[core], rt.Now()).Add(r.model.Metadata.Call)
				rt.Sleep(free[core].Sub(rt.Now()))
			},
		}, indexReady)
		if err == nil {
			err = c.Serve()
		}
		r.rack.Stop(err)
	})
}

// client reads all keys, so that it knows their places, waits until all clients have done so, and
// executes the workload.
func (r *directRun) client(h *simrack.Host, ctx verbs.Context, id int) error {
	rt := ctx.Runtime()
	rt.Sleep(indexReady.Sub(rt.Now()))
	if !r.ready {
		return fmt.Errorf("the keys were not loaded at %v", rt.Now())
	}
	c, err := r.open(h, ctx, indexWarm)
	if err != nil {
		return err
	}
	for i := range r.cfg.Keys {
		if _, err := c.Get((i+uint64(id))%r.cfg.Keys, nil, indexWarm); err != nil {
			return errors.Join(err, c.Close())
		}
	}
	return errors.Join(r.workFrom(indexWarm, &program{c, rt, r.model.Client.Get, r.model.Client.Put}, rt, id), c.Close())
}
