package insim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

const (
	// indexHosts and indexServers are the defaults of Machines and Servers. indexRegion is the
	// memory of a server in bytes.
	indexHosts   = 7
	indexServers = 2
	indexRegion  = 64 << 20
	// indexValue is the largest value of an object of one unit. The published system takes such an
	// object for a key with a value of 128 bytes.
	indexValue = layout.Unit - layout.Overhead
	// indexOpen is the virtual time by which the table is made, indexReady that by which all keys are
	// loaded, and indexWarm that by which all clients know the slots of all keys.
	indexOpen  = clock.Time(time.Second)
	indexReady = clock.Time(2 * time.Second)
	indexWarm  = clock.Time(6 * time.Second)
	// indexWarmUp and indexRunTime are the defaults of Warm and Run.
	indexWarmUp  = 200 * time.Microsecond
	indexRunTime = time.Millisecond
	// indexCache is how many places a client's cache has for each key of the store; with several,
	// few keys share a place.
	indexCache = 8
)

// indexRun is a load of FUSEE in progress.
type indexRun struct {
	workload
	load    experiment.Fusee
	servers []netip.Addr
	// first is the client that has read all keys; nil means that none has done so yet.
	first *fusee.Client
	// steps counts the operations in each step of the run.
	steps []uint64
}

func indexLoad(l experiment.Fusee) experiment.Fusee {
	l.Machines, l.Servers = cmp.Or(l.Machines, indexHosts), cmp.Or(l.Servers, indexServers)
	l.Value = cmp.Or(l.Value, indexValue)
	l.Warm, l.Run, l.Steps = cmp.Or(l.Warm, indexWarmUp), cmp.Or(l.Run, indexRunTime), max(l.Steps, 1)
	l.IndexReplicas, l.Switch.LineRate = cmp.Or(l.IndexReplicas, 1), true
	return l
}

// indexRack returns the rack file of a load. A switch that replaces atomics does so on all servers
// with a replica of the index.
func indexRack(l *experiment.Fusee) string {
	out := fmt.Sprintf("name: index\nhosts:\n  - {name: \"ms[0-%d]\", role: memory}\n  - {name: \"cn[0-%d]\", role: compute}\n",
		l.Servers-1, l.Machines-1) + bulkHosts(l.Bulk, l.Servers)
	how := mode(&l.Switch)
	if how == "" {
		return out
	}
	out += "switch:\n  program: swordbox\n  rules:\n"
	for i := range l.IndexReplicas {
		out += fmt.Sprintf("    - {server: ms%d, action: atomics, mode: %s, misses: %s}\n", i, how, cmp.Or(l.Switch.Misses, "server"))
	}
	return out
}

// Fusee runs clients of FUSEE. The switch keeps up with every load.
func (p *Sim) Fusee(ctx context.Context, l experiment.Fusee) (experiment.StoreResult, error) {
	l = indexLoad(l)
	r := &indexRun{load: l, steps: make([]uint64, l.Steps)}
	var err error
	if r.rack, err = newRackWith(ctx, indexRack(&l), simrack.Options{Seed: l.Seed, Cost: p.model(&l.Switch), Datagrams: mode(&l.Switch) != ""}, l.Bulk); err != nil {
		return experiment.StoreResult{}, err
	}
	defer r.rack.Close()
	for i := range l.Servers {
		r.servers = append(r.servers, serveMemory(r.rack, i, memservice.Config{Region: indexRegion}))
	}
	r.cfg = kv.RunConfig{
		Workload: l.Workload, Keys: l.Keys, Value: l.Value, Zipf: l.Zipf, Scramble: true, Clients: l.Clients,
		Warmup: l.Warm, Duration: l.Run, Patience: time.Second, Verify: true, Observe: r.observe,
	}
	if l.Own {
		r.cfg.Popularity.Shape = kv.ShapeOwn
	}
	r.bulk(l.Bulk, l.Servers, indexWarm)
	start(r.rack, "cn0", "format", r.format)
	startClients(r.rack, l.Clients, l.Machines, r.client)
	for i := range l.Visit.Guests {
		host := fmt.Sprintf("cn%d", (l.Clients+i)%l.Machines)
		start(r.rack, host, fmt.Sprintf("guest%d", i), func(h *simrack.Host, ctx verbs.Context) error { return r.guest(h, ctx, i) })
	}
	sent := make([]uint64, l.Servers)
	count := func() {
		for i := range sent {
			sent[i] = r.rack.Switch().Port(i).RxBytes - sent[i]
		}
	}
	r.rack.At(indexWarm.Add(l.Warm), count)
	r.rack.At(indexWarm.Add(l.Warm+l.Run), count)
	out, err := r.measure(ctx, indexWarm)
	for _, n := range sent {
		out.Links = append(out.Links, float64(n)/l.Run.Seconds())
	}
	for _, n := range r.steps {
		out.Steps = append(out.Steps, float64(n)/(l.Run/time.Duration(l.Steps)).Seconds())
	}
	return out, err
}

// observe is called when an operation has ended, and counts it in the step of the run in which it
// ended.
func (r *indexRun) observe(time.Duration) {
	since := r.rack.Now().Sub(indexWarm.Add(r.load.Warm))
	if since >= 0 && since < r.load.Run {
		r.steps[since*time.Duration(r.load.Steps)/r.load.Run]++
	}
}

func (r *indexRun) config(h *simrack.Host, ctx verbs.Context) fusee.Config {
	c := fusee.Config{
		Context: ctx, Manager: h.Manager(ctx), Servers: r.servers, Threshold: r.load.Threshold, Cache: indexCache * int(r.load.Keys),
	}
	if r.load.NoCache {
		c.Cache = -1
	}
	return c
}

func (r *indexRun) format(h *simrack.Host, ctx verbs.Context) error {
	_, err := fusee.Format(r.config(h, ctx), fusee.FormatConfig{
		Generation: 1, Replicas: r.load.Replicas, IndexReplicas: r.load.IndexReplicas,
	}, indexOpen)
	return err
}

// client prepares a client when the table is made, and executes the workload.
func (r *indexRun) client(h *simrack.Host, ctx verbs.Context, id int) error {
	rt := ctx.Runtime()
	rt.Sleep(indexOpen.Sub(rt.Now()))
	c, err := fusee.Open(r.config(h, ctx), indexReady)
	if err != nil {
		return err
	}
	if err := prepare(&r.workload, c, &r.first, rt, id, indexReady, indexWarm); err != nil {
		return errors.Join(err, c.Close())
	}
	return errors.Join(r.work(c, rt, id), c.Close())
}

// guest runs one of the additional clients: it joins in the middle of the run, knows no slots at
// first, and leaves before the run ends.
func (r *indexRun) guest(h *simrack.Host, ctx verbs.Context, i int) error {
	rt, step := ctx.Runtime(), r.load.Run/time.Duration(r.load.Steps)
	begin := indexWarm.Add(r.load.Warm)
	rt.Sleep(begin.Add(time.Duration(r.load.Visit.Join) * step).Sub(rt.Now()))
	c, err := fusee.Open(r.config(h, ctx), clock.Never)
	if err != nil {
		return err
	}
	leave := begin.Add(time.Duration(r.load.Visit.Leave+1) * step)
	cfg := r.cfg
	cfg.Client, cfg.Clients = r.load.Clients+i, r.load.Clients+r.load.Visit.Guests
	cfg.Warmup, cfg.Duration = 0, max(1, leave.Sub(rt.Now()))
	res, err := kv.Run(c, rt, cfg, nil)
	if err == nil {
		r.total.Merge(res)
	}
	return errors.Join(err, c.Close())
}
