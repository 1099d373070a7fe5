package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/experiment/chains"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/nictable"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

// RedN runs programs of work requests and their baselines, or GETs of one reader of the store nictable.
func (p *rackPlatform) RedN(ctx context.Context, l experiment.RedN) (out experiment.RedNResult, err error) {
	switch l.Kind {
	case experiment.ChainGets:
		return p.gets(ctx, l)
	case experiment.ChainCrash:
		return p.timeline(ctx, l)
	}
	return p.chains(ctx, l)
}

// gets measures GETs of one reader of the store nictable, while l.N writers write.
func (p *rackPlatform) gets(ctx context.Context, l experiment.RedN) (out experiment.RedNResult, err error) {
	reads, err := p.table(ctx, l)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, stopStore(p.cmd, &nictable.Store)) }()
	written := make(chan error, 1)
	if l.N == 0 {
		written <- nil
	} else {
		f, err := tableFlags(p.rack, l, "100", "", l.N, time.Second)
		if err != nil {
			return out, err
		}
		writes, err := newStoreRun(p.cmd, p.rack, f)
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
	if err := failedGETs(res); err != nil {
		return out, err
	}
	out.Median, out.P99 = res.Percentile(kv.KindRead, 50), res.Percentile(kv.KindRead, 99)
	out.Mean = time.Duration(float64(time.Second) / res.Throughput())
	return out, nil
}

func failedGETs(res *kv.Result) error {
	if n := res.Failed + res.Wrong + res.NotFound; n > 0 {
		return fmt.Errorf("%d GETs failed: %s", n, res.FirstError)
	}
	return nil
}

// filled starts a store, loads its keys, and returns the run of clients. If loading fails, it stops
// the store.
func (p *rackPlatform) filled(ctx context.Context, f *runFlags, s *store.Store) (*storeRun, error) {
	run, err := newStoreRun(p.cmd, p.rack, f)
	if err != nil {
		return nil, err
	}
	if _, err := run.all(ctx, true); err != nil {
		return nil, errors.Join(fmt.Errorf("load: %w", err), stopStore(p.cmd, s))
	}
	return run, nil
}

// tableWays has, for the ways of experiment.RedN, the names by which nictable knows them.
var tableWays = map[string]string{experiment.WayNIC: store.GetsNIC, experiment.WayReads: store.GetsReads, experiment.WayPolling: store.GetsServer}

// table starts the store nictable, fills it, and returns a run of one reader. The caller stops the
// store.
func (p *rackPlatform) table(ctx context.Context, l experiment.RedN) (*storeRun, error) {
	way, ok := tableWays[l.Way]
	if !ok {
		return nil, errors.ErrUnsupported
	}
	if err := p.noStores(); err != nil {
		return nil, err
	}
	f, err := tableFlags(p.rack, l, "c", way, 1, 0)
	if err != nil {
		return nil, err
	}
	return p.filled(ctx, f, &nictable.Store)
}

const (
	// timelinePatience is how long a GET of a timeline may take. timelineAway is the time between
	// the death of the store's process and the start of the next one.
	timelinePatience, timelineAway = time.Second, time.Second
	// timelineOpen is how long the client may take to connect to the store.
	timelineOpen = 10 * time.Second
)

// timeline measures which GETs of the first host are answered while the process of nictable dies
// and is started again.
func (p *rackPlatform) timeline(ctx context.Context, l experiment.RedN) (out experiment.RedNResult, err error) {
	reads, err := p.table(ctx, l)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, stopStore(p.cmd, &nictable.Store)) }()
	server, _, _ := p.rack.Host(reads.client.Server)
	nic, err := p.openNIC(p.hosts[0])
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, nic.Close()) }()
	rt := nic.Runtime()
	c, err := nictable.Open(nictable.ClientConfig{Context: nic, Manager: nic.Manager(), Server: server.IPv4, Gets: tableWays[l.Way]}, rt.Now().Add(timelineOpen))
	if err != nil {
		return out, err
	}
	again := make(chan error, 1)
	go func() { again <- p.restartTable(ctx, reads) }()
	keys := reads.flags.config.Keys
	out.Steps, err = chains.Timeline(rt, rt.Now(), timelinePatience, func(i int, deadline clock.Time) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		_, err := c.Get(uint64(i)%keys, nil, deadline)
		if errors.Is(err, kv.ErrTimeout) {
			return false, nil
		}
		return err == nil, err
	})
	return out, errors.Join(err, <-again, c.Close())
}

// restartTable kills the process of nictable at the time of chains.Death, and starts it again.
func (p *rackPlatform) restartTable(ctx context.Context, reads *storeRun) error {
	host := reads.client.Server
	client, err := hostControl(p.cmd, host)
	if err != nil {
		return err
	}
	post := func(path string) error {
		return ask(context.WithoutCancel(ctx), client, host, http.MethodPost, path, nil, nil)
	}
	if err := pause(ctx, chains.Death*chains.Step); err != nil {
		return err
	}
	if err := post(hostd.PathCrashApp); err != nil {
		return err
	}
	away := pause(ctx, timelineAway)
	if err := errors.Join(away, post(hostd.PathStartApp)); err != nil {
		return err
	}
	return reads.start(p.rack)
}

// tableFlags returns the flags of a run of clients of the store nictable. further is added to the
// usual duration, so that writers work longer than the reader beside them.
func tableFlags(r *rackfile.Rack, l experiment.RedN, workload, way string, clients int, further time.Duration) (*runFlags, error) {
	w, err := kv.FindWorkload(workload)
	if err != nil {
		return nil, err
	}
	f := &runFlags{store: nictable.Store.Name, clients: clients, out: runOutput{quiet: true}, options: store.ClientOptions{Gets: way}, config: rackConfig(r, w, clients)}
	f.config.Value = max(kv.MinValue, l.Bytes)
	f.config.Duration += further
	return f, nil
}
