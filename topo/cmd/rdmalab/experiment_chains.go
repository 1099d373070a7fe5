package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/topo/experiment"
	"github.com/rdmalab/rdmalab/topo/experiment/chains"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// Programs of work requests on a rack, as in chains.Config. A lap of a loop takes more than 0.5 us.
const (
	chainRounds, chainRated = 200, 600
	chainSpan               = 2 * time.Millisecond
)

// chainRun runs programs of work requests and their baselines between the memory server and the first
// compute host. This process is a program on both hosts.
type chainRun struct {
	*chains.Run
	server, client *nicProgram
	// left is the number of clients that have not connected yet. begin is closed when all have, and failed
	// when the run has ended, for the reason err. before is how many entries of rings the server's NIC had
	// executed at the begin; entries asks for that number.
	left          atomic.Int32
	begin, failed chan struct{}
	once          sync.Once
	err           error
	before        uint64
	entries       func() (uint64, error)
}

// nicProgram is this process as a program on a host.
type nicProgram struct {
	*ipc.Context
	host *spec.Host
}

// openNIC makes this process a program on a host.
func (p *rackPlatform) openNIC(host string) (*nicProgram, error) {
	h, _, ok := p.rack.Host(host)
	if !ok {
		return nil, fmt.Errorf("the rack has no host %s", host)
	}
	nic, err := ipc.Open(ipc.Config{Socket: spec.PathsOf(p.rack.Name).Verbs(host), Name: "experiment"})
	return &nicProgram{nic, h}, withNode(err, host)
}

// machine is a program on a host as a machine for chains.
func (n *nicProgram) machine() chains.Machine {
	return chains.Machine{Context: n.Context, Manager: n.Manager(), Addr: n.host.IPv4, Alloc: n.Alloc}
}

// chainRuns is how often a load runs, and chainShort how often one runs that takes some microseconds. Which
// process has which processor stays the same in a run and differs between runs.
const chainRuns, chainShort = 11, 25

// chains runs a load of programs several times, and returns the run with the median time or rate.
func (p *rackPlatform) chains(ctx context.Context, l experiment.RedN) (out experiment.RedNResult, err error) {
	n := chainRuns
	if l.Kind == experiment.ChainOrder {
		n = chainShort
	}
	runs := make([]experiment.RedNResult, n)
	for i := range runs {
		if runs[i], err = p.chain(ctx, l); err != nil {
			return out, err
		}
	}
	slices.SortFunc(runs, func(a, b experiment.RedNResult) int {
		return cmp.Or(cmp.Compare(a.Rate, b.Rate), cmp.Compare(a.Median, b.Median))
	})
	return runs[n/2], nil
}

// chain runs a load of programs once.
func (p *rackPlatform) chain(ctx context.Context, l experiment.RedN) (out experiment.RedNResult, err error) {
	if err := p.box.set(ctx, &experiment.Switch{}, nil, ""); err != nil {
		return out, err
	}
	r := &chainRun{begin: make(chan struct{}), failed: make(chan struct{}), entries: func() (uint64, error) { return p.counter("ring_entries") }}
	if r.server, err = p.openNIC(p.to); err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, r.server.Close()) }()
	r.Run = chains.New(chains.Config{
		Load: l, Server: r.server.host.IPv4, Rounds: chainRounds, Rated: chainRated, Span: chainSpan, Ready: r.ready, Failed: r.fail, Stopped: r.hasFailed,
	})
	defer context.AfterFunc(ctx, func() { r.fail(ctx.Err()) })()
	if r.Alone() {
		err := r.RunAlone(r.server.machine())
		return r.Result(), r.outcome(err)
	}
	if r.client, err = p.openNIC(p.hosts[0]); err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, r.client.Close()) }()
	entries, err := r.clients()
	out = r.Result()
	out.Entries = float64(entries) / float64(r.Requests())
	return out, err
}

// clients starts the server and its clients, and waits until the clients have ended. It returns how many
// entries of rings the server's NIC has executed for them.
func (r *chainRun) clients() (entries uint64, err error) {
	up, done := make(chan func() error, 1), make(chan error, 1)
	go func() {
		err := r.Serve(r.server.machine(), func(end func() error) { up <- end })
		r.fail(err)
		done <- err
	}()
	var end func() error
	select {
	case end = <-up:
	case err := <-done:
		return 0, r.outcome(err)
	}
	r.left.Store(int32(r.Load.Clients))
	var wg sync.WaitGroup
	for range r.Load.Clients {
		wg.Go(func() { r.fail(r.Client(r.client.machine())) })
	}
	wg.Wait()
	err = r.outcome(nil)
	after := uint64(0)
	if err == nil {
		after, err = r.entries()
	}
	// The memory of a context must not be used after its Close: so first all that use it end.
	return after - r.before, errors.Join(err, end(), <-done)
}

// hasFailed reports whether the run has ended.
func (r *chainRun) hasFailed() bool {
	select {
	case <-r.failed:
		return true
	default:
		return false
	}
}

// ready waits until all clients have connected.
func (r *chainRun) ready(verbs.Runtime) (err error) {
	if r.left.Add(-1) == 0 {
		if r.before, err = r.entries(); err != nil {
			return err
		}
		close(r.begin)
	}
	select {
	case <-r.begin:
		return nil
	case <-r.failed:
		return verbs.ErrClosed
	}
}

// fail ends the run. Only the first error counts.
func (r *chainRun) fail(err error) {
	if err != nil {
		r.once.Do(func() {
			r.err = err
			close(r.failed)
		})
	}
}

// outcome returns the error that ended the run first; err is that of its end.
func (r *chainRun) outcome(err error) error {
	if r.fail(err); r.hasFailed() {
		return r.err
	}
	return nil
}
