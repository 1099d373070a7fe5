package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/experiment/insim"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

// besideBulk is clients of a store on a rack in slow motion, beside hosts that WRITE to its memory servers. start has the
// flags with which the store is started, besides those that every run gives.
type besideBulk struct {
	on     *rackPlatform
	desc   *store.Store
	start  string
	load   experiment.Bulk
	seed   uint64
	config kv.RunConfig
	// clients is how many compute hosts, the first ones, run clients. from[i] sends to to[i].
	clients  int
	from, to []string
}

const (
	// besideKeys and besideValue are how many keys there are by default, and the bytes of their values.
	besideKeys, besideValue = 1024, 104
	// besidePatience is how long an operation may take, by the rack's clock: some ACK timeouts.
	besidePatience = 10 * time.Second
)

// run runs the clients on the rack, and then in the simulator with the rack's file. No store may be up.
func (b *besideBulk) run(ctx context.Context) (out experiment.StoreResult, err error) {
	model, err := slowRack{b.on, experiment.StoresRack}.ready(ctx)
	if err != nil {
		return out, err
	}
	if err := b.cast(); err != nil {
		return out, err
	}
	if out, err = b.onRack(ctx); err != nil {
		return out, err
	}
	twin, err := b.inSim(model)
	out.Twin = &twin
	return out, err
}

// cast makes the last compute hosts senders, some for each memory server.
func (b *besideBulk) cast() error {
	rack := b.on.rack
	memory, err := rack.NamesByRole(rackfile.Memory)
	if err != nil {
		return err
	}
	compute, err := rack.NamesByRole(rackfile.Compute)
	if err != nil {
		return err
	}
	senders := experiment.BulkSenders * len(memory)
	if b.clients = len(compute) - senders; b.clients < 1 {
		return fmt.Errorf("rack %s has %d compute hosts, and the bulk senders take %d: bring up %s", rack.Name, len(compute), senders, experiment.StoresRack)
	}
	if b.load.Control != experiment.BulkIdle {
		b.from = compute[b.clients:]
		b.to = slices.Repeat(memory, experiment.BulkSenders)
	}
	return nil
}

// flags are those of the run, on the rack and in the simulator.
func (b *besideBulk) flags() *runFlags {
	f := &runFlags{store: b.desc.Name, start: b.start, clients: b.config.Clients, out: runOutput{quiet: true}, config: b.config}
	f.place.seed = b.seed
	c := &f.config
	c.Keys, c.Value, c.Patience, c.Verify = cmp.Or(c.Keys, besideKeys), cmp.Or(c.Value, besideValue), besidePatience, true
	return f
}

// onRack starts the store, runs its clients, and stops it.
func (b *besideBulk) onRack(ctx context.Context) (out experiment.StoreResult, err error) {
	p, f := b.on, b.flags()
	call, err := storeCall(p.cmd, b.desc, "")
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, stopStore(p.cmd, b.desc)) }()
	if err := f.startStore(call, true); err != nil {
		return out, err
	}
	f.start = ""
	run, err := newStoreRun(p.cmd, p.rack, f) // the store is up, so this only finds it
	if err != nil {
		return out, err
	}
	run.hosts = run.hosts[:b.clients]
	if !run.loaded {
		if _, err := run.all(ctx, true); err != nil {
			return out, fmt.Errorf("load: %w", err)
		}
	}
	flows := rackFlows{on: p, span: f.config.Warmup + f.config.Duration}
	for i := range b.from {
		flows.list = append(flows.list, rackFlow{b.from[i], b.to[i], insim.BulkFlow})
	}
	err = flows.run(ctx, func(ctx context.Context) (err error) {
		out, err = b.beside(ctx, run, &flows)
		return err
	})
	return out, err
}

// beside runs the clients when all senders send.
func (b *besideBulk) beside(ctx context.Context, run *storeRun, flows *rackFlows) (out experiment.StoreResult, err error) {
	first, _, err := b.sent(ctx)
	if err != nil {
		return out, err
	}
	_, err = flows.allSend(ctx, func() (bool, error) {
		now, _, err := b.sent(ctx)
		return err == nil && !slices.ContainsFunc(b.from, func(host string) bool { return now[host]-first[host] < insim.SenderMessage }), err
	})
	if err != nil {
		return out, err
	}
	if first, _, err = b.sent(ctx); err != nil {
		return out, err
	}
	began := time.Now()
	if out, err = b.on.workload(ctx, run); err != nil {
		return out, err
	}
	took := time.Since(began)
	last, rate, err := b.sent(ctx)
	sum := uint64(0)
	for host := range last {
		sum += last[host] - first[host]
	}
	out.Bulk = b.share(sum, rate, took/time.Duration(b.on.rack.Slow))
	return out, errors.Join(err, flows.going("before the clients were done"))
}

// share is the share of the ports' rate that the bytes of the senders have taken in a time; 0 without senders.
func (b *besideBulk) share(bytes uint64, rate int64, took time.Duration) float64 {
	const bits = 8
	if len(b.from) == 0 {
		return 0
	}
	return bits * float64(bytes) / float64(rate) / took.Seconds() * experiment.BulkSenders / float64(len(b.from))
}

// sent returns how many bytes of links the frames of each sender have taken, and the rate of the ports.
func (b *besideBulk) sent(ctx context.Context) (of map[string]uint64, rate int64, err error) {
	counters, queues, _, err := portsOf(ctx, b.on.rack.Name)
	if err == nil && queues.Rate == 0 {
		err = errNoQueues
	}
	if err != nil {
		return nil, 0, err
	}
	of = make(map[string]uint64)
	for _, host := range b.from {
		i := slices.IndexFunc(counters.Ports, func(p switchd.PortCounters) bool { return p.Host == host })
		if i < 0 {
			return nil, 0, fmt.Errorf("the switch has no port of %s", host)
		}
		of[host] = counters.Ports[i].RxBytes + counters.Ports[i].RxPackets*portqueue.Overhead
	}
	return of, queues.Rate, nil
}
