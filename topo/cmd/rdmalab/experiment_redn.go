package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/nictable"
	"github.com/rdmalab/rdmalab/topo/experiment"
)

// RedN runs programs of work requests and their baselines, or GETs of one reader of the store nictable beside
// writers. ChainCrash is not supported.
func (p *rackPlatform) RedN(ctx context.Context, l experiment.RedN) (out experiment.RedNResult, err error) {
	switch l.Kind {
	case experiment.ChainGets:
		return p.gets(ctx, l)
	case experiment.ChainCrash:
		return out, errors.ErrUnsupported
	}
	return p.chains(ctx, l)
}

// gets runs GETs of one reader of the store nictable, beside writers.
func (p *rackPlatform) gets(ctx context.Context, l experiment.RedN) (out experiment.RedNResult, err error) {
	ways := map[string]string{experiment.WayNIC: store.GetsNIC, experiment.WayReads: store.GetsReads, experiment.WayPolling: store.GetsServer}
	way, ok := ways[l.Way]
	if !ok {
		return out, errors.ErrUnsupported
	}
	if err := p.noStores(); err != nil {
		return out, err
	}
	reads, err := p.tableRun(l, "c", way, 1, 0)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, p.stopTable()) }()
	if _, err := reads.all(ctx, true); err != nil {
		return out, fmt.Errorf("load: %w", err)
	}
	written := make(chan error, 1)
	if l.N == 0 {
		written <- nil
	} else {
		writes, err := p.tableRun(l, "100", "", l.N, time.Second)
		if err != nil {
			return out, err
		}
		go func() {
			_, err := writes.all(ctx, false)
			written <- err
		}()
	}
	res, err := reads.all(ctx, false)
	if err := errors.Join(err, <-written); err != nil {
		return out, err
	}
	if n := res.Failed + res.Wrong + res.NotFound; n > 0 {
		return out, fmt.Errorf("%d GETs failed: %s", n, res.FirstError)
	}
	out.Median, out.P99 = res.Percentile(kv.KindRead, 50), res.Percentile(kv.KindRead, 99)
	out.Mean = time.Duration(float64(time.Second) / res.Throughput())
	return out, nil
}

// tableRun returns a run of clients of the store nictable, which it starts if necessary. further is how
// much longer the run takes than a run of readers.
func (p *rackPlatform) tableRun(l experiment.RedN, workload, way string, clients int, further time.Duration) (*storeRun, error) {
	w, err := kv.FindWorkload(workload)
	if err != nil {
		return nil, err
	}
	f := &runFlags{store: nictable.Store.Name, clients: clients, quiet: true, options: store.ClientOptions{Gets: way}, config: rackConfig(w, clients)}
	f.config.Value = max(kv.MinValue, l.Bytes)
	f.config.Duration += further
	return newStoreRun(p.cmd, p.rack, f)
}

// stopTable stops the store nictable.
func (p *rackPlatform) stopTable() error {
	call, err := storeCall(p.cmd, &nictable.Store, "")
	if err != nil {
		return err
	}
	host, err := call.Options()
	if err != nil {
		return err
	}
	return call.Post(host.Server, nictable.Store.Path(store.PathStop), struct{}{}, nil)
}
