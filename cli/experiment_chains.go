package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/experiment/chains"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// chainRounds, chainRated and chainSpan are Rounds, Rated and Span of chains.Config on a rack.
// Within Span a loop may make at most 4,096 laps, the range of the counter of laps. A lap takes more
// than 0.5 us on a rack, so the 2 ms of chainSpan are short enough.
const (
	chainRounds, chainRated = 200, 600
	chainSpan               = 2 * time.Millisecond
)

// chainRun runs programs of work requests and their baselines between the memory server and the
// first compute host. The rdmalab process itself uses the NICs of both hosts, as their programs
// would: it is the server and all clients.
type chainRun struct {
	*chains.Run
	server, client *nicProgram
	left           atomic.Int32    // clients that have not connected yet
	begin          chan struct{}   // closed when all clients have connected
	failed         context.Context // ends when the run has failed; its cause is the first error
	cancel         context.CancelCauseFunc
	entries        func() (uint64, error) // reads how many ring entries the server's NIC has executed
	before         uint64                 // what entries returned when all clients had connected
}

// nicProgram is an open NIC of a host. To the NIC, this process is a program on that host.
type nicProgram struct {
	*ipc.Context
	host *rackfile.Host
}

func (p *rackPlatform) openNIC(host string) (*nicProgram, error) {
	h, _, ok := p.rack.Host(host)
	if !ok {
		return nil, fmt.Errorf("the rack has no host %s", host)
	}
	nic, err := ipc.Open(ipc.Config{Socket: rackfile.PathsOf(p.rack.Name).Verbs(host), Name: "experiment"})
	return &nicProgram{nic, h}, withNode(err, host)
}

func (n *nicProgram) machine() chains.Machine {
	return chains.Machine{Context: n.Context, Manager: n.Manager(), Addr: n.host.IPv4, Alloc: n.Alloc}
}

// chainRuns is how often a load runs, and chainShort how often a load runs that takes only
// microseconds; the result is that of the median run. Runs differ because the scheduler gives
// processes other processors in each run.
const chainRuns, chainShort = 11, 25

// chains runs a load of programs several times, and returns the result of the run with the median
// rate or time.
func (p *rackPlatform) chains(ctx context.Context, l experiment.RedN) (out experiment.RedNResult, err error) {
	runs := make([]experiment.RedNResult, either(l.Kind == experiment.ChainOrder, chainShort, chainRuns))
	for i := range runs {
		if runs[i], err = p.chain(ctx, l); err != nil {
			return out, err
		}
	}
	slices.SortFunc(runs, func(a, b experiment.RedNResult) int {
		return cmp.Or(cmp.Compare(a.Rate, b.Rate), cmp.Compare(a.Median, b.Median))
	})
	return runs[len(runs)/2], nil
}

func (p *rackPlatform) chain(ctx context.Context, l experiment.RedN) (out experiment.RedNResult, err error) {
	if err := p.box.set(ctx, &experiment.Switch{}, nil, ""); err != nil {
		return out, err
	}
	r := &chainRun{begin: make(chan struct{}), entries: func() (uint64, error) { return p.counter("ring_entries") }}
	r.failed, r.cancel = context.WithCancelCause(context.Background())
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
	// The memory of a context must not be used after Close, so all threads that use it end first.
	return after - r.before, errors.Join(err, end(), <-done)
}

func (r *chainRun) hasFailed() bool { return r.failed.Err() != nil }

// ready is called by each client when it has connected, and waits until all clients have connected.
// The last client reads the counter of ring entries and closes begin.
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
	case <-r.failed.Done():
		return verbs.ErrClosed
	}
}

// fail makes the run fail with err, unless err is nil. Only the first error counts.
func (r *chainRun) fail(err error) {
	if err != nil {
		r.cancel(err)
	}
}

// outcome makes the run fail with err, unless err is nil. It returns the first error with which the
// run has failed; nil means that it has not failed.
func (r *chainRun) outcome(err error) error {
	r.fail(err)
	return context.Cause(r.failed)
}
