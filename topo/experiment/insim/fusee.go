package insim

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/topo/experiment"
	"github.com/rdmalab/rdmalab/topo/simrack"
	"github.com/rdmalab/rdmalab/topo/spec"
)

const (
	indexHosts   = 7
	indexServers = 2
	indexRegion  = 64 << 20
	// indexValue is the largest value of an object of two units, 128 bytes.
	indexValue = 2*layout.Unit - layout.Overhead
	// indexReady is when all keys are loaded, indexWarm when all clients remember their slots.
	indexReady   = clock.Time(2 * time.Second)
	indexWarm    = clock.Time(6 * time.Second)
	indexWarmUp  = 200 * time.Microsecond
	indexRunTime = time.Millisecond
)

// indexRun is a load of FUSEE in progress.
type indexRun struct {
	workload
	servers []netip.Addr
	ready   bool
}

// Fusee runs clients of FUSEE, with two replicas of objects and one of the index on two memory
// servers. The switch keeps up with every load.
func (p *Sim) Fusee(ctx context.Context, l experiment.Fusee) (experiment.StoreResult, error) {
	s, err := spec.Parse(fmt.Appendf(nil, "name: index\nhosts:\n  - {name: \"ms[0-%d]\", role: memory}\n  - {name: \"cn[0-%d]\", role: compute}\n",
		indexServers-1, indexHosts-1))
	if err != nil {
		return experiment.StoreResult{}, err
	}
	r := new(indexRun)
	r.rack, err = simrack.New(s, simrack.Options{Seed: seed(0), Cost: p.Cost.AtLineRate(), Cancelled: cancelled(ctx)})
	if err != nil {
		return experiment.StoreResult{}, err
	}
	defer r.rack.Close()
	for i := range indexServers {
		r.servers = append(r.servers, serveMemory(r.rack, i, memservice.Config{Region: indexRegion}))
	}
	r.cfg = kv.RunConfig{
		Workload: l.Workload, Keys: l.Keys, Value: indexValue, Zipf: l.Zipf, Scramble: true, Clients: l.Clients,
		Warmup: indexWarmUp, Duration: indexRunTime, Patience: time.Second, Verify: true,
	}
	loader := r.rack.Host("cn0")
	loader.Go("load", false, func(ctx verbs.Context) { r.rack.Stop(r.fill(loader, ctx)) })
	r.clients(indexHosts, r.client)
	return r.measure(ctx, indexWarm)
}

func (r *indexRun) open(h *simrack.Host, ctx verbs.Context, deadline clock.Time) (*fusee.Client, error) {
	return fusee.Open(fusee.Config{Context: ctx, Manager: h.Manager(ctx), Servers: r.servers}, deadline)
}

// fill makes the table and loads the keys.
func (r *indexRun) fill(h *simrack.Host, ctx verbs.Context) error {
	cfg := fusee.Config{Context: ctx, Manager: h.Manager(ctx), Servers: r.servers}
	if _, err := fusee.Format(cfg, fusee.FormatConfig{Generation: 1}, indexReady); err != nil {
		return err
	}
	c, err := r.open(h, ctx, indexReady)
	if err != nil {
		return err
	}
	for key := range r.cfg.Keys {
		if err := c.Insert(key, kv.MakeValue(key, key, indexValue)[:indexValue], indexReady); err != nil {
			return errors.Join(err, c.Close())
		}
	}
	r.ready = true
	return c.Close()
}

// client reads all keys, so that it remembers their slots, waits until all clients have done so, and
// executes the workload.
func (r *indexRun) client(h *simrack.Host, ctx verbs.Context, id int) error {
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
	return errors.Join(r.workFrom(indexWarm, c, rt, id), c.Close())
}
