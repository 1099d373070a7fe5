package hostd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	onermahost "github.com/rdmalab/rdmalab/onerma/host"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
)

// maxJobs bounds the jobs that run at the same time on a host.
const maxJobs = 64

// LockTable is the size of the lock table of a memory service on the NIC, in bytes (the Sherman
// paper, §4).
const LockTable = 256 << 10

// deviceMemory is the size of a NIC's device memory in bytes: a lock table for the memory service, and
// two for programs, of which each may have half. So a program gets as much as a ConnectX-5 has.
const deviceMemory = 3 * LockTable

// application is the part of a host above its NIC: services and jobs. Each has its own verbs
// context. Their queue pairs end with the context, like those of a process. Only the queue pairs of
// the memory service belong to the NIC, and survive a crash of the application.
type application struct {
	h *Host

	// hang stops the threads of services and jobs. It begins and ends while mu is held, and only
	// while the application runs. No thread holds mu while it waits for the end of the hang.
	hang device.Hang
	conn hangingManager

	holds holds

	mu      sync.Mutex // guards the fields below
	running bool
	// stood has the states of the stores from when the application began to hang. They are reported
	// during the hang, because a stopped thread may hold the lock that a store's status needs.
	stood []store.Status
	// memory survives a crash of the application: its region stays registered, and its connections
	// stay open.
	memory    *memservice.Server
	memoryCtx verbs.Context
	owners    memservice.Owners  // which clients of the memory were fenced; survives a crash of the NIC
	perf      *memservice.Server // the service of `rdmalab perf`
	perfCtx   verbs.Context
	lender    *onermahost.Lender // lends memory to peers over the 1RMA NIC; nil if there is none
	served    sync.WaitGroup     // the threads that serve memory and perf
	jobs      map[*job]struct{}

	stores *stores
}

// job is the work of a control request that uses the NIC with its own verbs context, such as a
// test, or clients of a store.
type job struct {
	name   string
	ctx    verbs.Context
	cancel context.CancelFunc
}

// of makes the application that of a host, before it starts.
func (a *application) of(h *Host) {
	a.h, a.jobs = h, make(map[*job]struct{})
	a.conn = hangingManager{h.conn, &a.hang}
	a.stores = a.newStores()
}

// start starts the services. It does nothing if the application runs, and fails if it hangs or if
// the host is ending.
func (a *application) start() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running {
		return a.works()
	}
	select {
	case <-a.h.stop:
		return control.Errorf(http.StatusConflict, "%s is ending", a.h.self.Name)
	default:
	}
	return a.startRunning()
}

// startRunning starts the services. If all of them could be started, the application runs; otherwise
// it counts as crashed. The caller holds mu.
func (a *application) startRunning() error {
	err := a.startServices()
	a.running = err == nil
	if err != nil {
		err = errors.Join(err, a.stop(store.Node.NICGone))
	}
	return err
}

func (a *application) startServices() (err error) {
	switch {
	case a.h.mem == nil:
	case a.memory != nil:
		if err := a.memory.Reopen(a.conn); err != nil {
			return err
		}
		a.serve(a.memory)
	default:
		a.memoryCtx = a.context()
		cfg := memservice.Config{Buffer: a.h.mem, Owners: &a.owners, Locks: LockTable}
		if a.memory, err = memservice.New(a.memoryCtx, a.conn, cfg); err != nil {
			a.memory = nil
			return errors.Join(err, a.memoryCtx.Close())
		}
		a.serve(a.memory)
	}
	a.perfCtx = a.context()
	cfg := memservice.Config{}
	if cfg.PD, err = a.sharedPD(); err != nil {
		return err
	}
	if a.perf, err = perf.NewServer(a.perfCtx, a.conn, cfg); err != nil {
		a.perf = nil
		return err
	}
	a.serve(a.perf)
	return a.lend()
}

// sharedPD returns the protection domain of the memory service for the service of `rdmalab perf`;
// nil if there is no memory service. A memory server has one domain, so that one connection of the
// switch can carry the requests of all its clients.
func (a *application) sharedPD() (verbs.PD, error) {
	shares, ok := a.perfCtx.(interface {
		SharePD(other verbs.PD) (verbs.PD, error)
	})
	if a.memory == nil || !ok {
		return nil, nil
	}
	return shares.SharePD(a.memory.PD())
}

func (a *application) serve(s *memservice.Server) {
	a.served.Go(func() {
		if err := s.Serve(); err != nil {
			a.h.log.Warn("service ended", "error", err)
		}
	})
}

// crash ends services and jobs at once. The region of a memory host stays registered, and connected
// clients can use it.
func (a *application) crash() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running = false
	if err := a.stop(store.Node.Crash); err != nil {
		a.h.log.Warn("end of application", "error", err)
	}
}

// nicGone is called when the NIC has crashed. It drops the objects that have ended with the NIC.
func (a *application) nicGone() {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := errors.Join(a.stop(store.Node.NICGone), closeIf(a.memoryCtx))
	a.memory, a.memoryCtx = nil, nil
	if err != nil {
		a.h.log.Warn("end of NIC", "error", err)
	}
}

// nicBack is called when the NIC has come up again. It starts the services, unless the application
// has crashed. If a service cannot be started, the application counts as crashed.
func (a *application) nicBack() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.running {
		return nil
	}
	return a.startRunning()
}

// stop cancels all jobs, calls ends for each store's node, closes the services, and waits for their
// threads. It ends a hang first, because hanging threads could not end. The caller holds mu.
func (a *application) stop(ends func(store.Node) error) error {
	a.endHang()
	var errs []error
	for j := range a.jobs {
		j.cancel()
		errs = append(errs, j.ctx.Close())
	}
	errs = append(errs, a.stores.each(ends))
	errs = append(errs, closeIf(a.memory), closeIf(a.perf), closeIf(a.lender), closeIf(a.perfCtx))
	a.lender = nil
	a.served.Wait()
	if a.perfCtx != nil {
		a.perfCtx.Runtime().Wait() // threads that serve its connections
	}
	a.perf, a.perfCtx = nil, nil
	return errors.Join(errs...)
}

// do runs f as a job. f gets a verbs context of the job's own, and a ctx that ends when the client of
// the request disconnects, or when stop ends all jobs.
func (a *application) do(r *http.Request, name string, f func(ctx context.Context, v verbs.Context) error) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	j := &job{name: name, cancel: cancel}
	if err := a.begin(j); err != nil {
		return err
	}
	defer a.end(j)
	err := f(ctx, j.ctx)
	if err != nil && ctx.Err() != nil && r.Context().Err() == nil {
		return fmt.Errorf("the application was killed: %w", err)
	}
	return err
}

func (a *application) begin(j *job) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.works(); err != nil {
		return err
	}
	if len(a.jobs) >= maxJobs {
		return control.Errorf(http.StatusTooManyRequests, "%d jobs run on %s (tests and clients of stores); wait for one to end", maxJobs, a.h.self.Name)
	}
	j.ctx = a.context()
	a.jobs[j] = struct{}{}
	return nil
}

func (a *application) end(j *job) {
	a.mu.Lock()
	delete(a.jobs, j)
	a.mu.Unlock()
	if err := j.ctx.Close(); err != nil {
		a.h.log.Warn("end of job", "job", j.name, "error", err)
	}
}

func (a *application) describe(st *Status) {
	a.mu.Lock()
	defer a.mu.Unlock()
	st.App = StateCrashed
	if a.running {
		st.App = StateRunning
	}
	if a.hang.On() {
		st.App = StateHung
	}
	st.Services, st.Jobs, st.Regions = []string{}, []string{}, []Region{}
	if a.memory != nil {
		if a.running {
			st.Services = append(st.Services, memservice.Service)
		}
		if mr := a.memory.Region(); mr != nil {
			st.Regions = append(st.Regions, Region{Service: memservice.Service, Addr: mr.Addr(), RKey: mr.RKey(), Length: mr.Len()})
		}
		if mr := a.memory.Locks(); mr != nil {
			st.Regions = append(st.Regions, Region{Service: "locks", Addr: mr.Addr(), RKey: mr.RKey(), Length: mr.Len()})
		}
	}
	if a.perf != nil {
		st.Services = append(st.Services, perf.PerfService)
	}
	if a.lender != nil {
		st.Services = append(st.Services, "onerma")
	}
	if st.Stores = a.stood; !a.hang.On() {
		st.Stores = a.stores.status()
	}
	for i := range st.Stores {
		if name := st.Stores[i].Service; name != "" {
			st.Services = append(st.Services, name)
		}
	}
	for j := range a.jobs {
		st.Jobs = append(st.Jobs, j.name)
	}
	slices.Sort(st.Jobs)
	st.Clients = a.stores.meter.status(time.Now())
}
