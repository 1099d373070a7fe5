package hostd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/trace"
)

// RunRequest asks a host to run clients of a store.
type RunRequest struct {
	// Store is the name of the store; "" means the default store.
	Store string `json:"store,omitempty"`
	store.ClientOptions
	// First is the number of the first client on this host. Count is the number of clients here.
	// Config.Client is not used.
	First  int          `json:"first"`
	Count  int          `json:"count"`
	Config kv.RunConfig `json:"config"`
	// Load is true if the clients only insert their parts of the keys; the result then describes
	// the inserts.
	Load bool `json:"load,omitempty"`
	// Trace, if not empty, is the packed trace that the clients replay instead of a workload.
	Trace []byte `json:"trace,omitempty"`
}

// RunEvent is one line of the answer to a RunRequest.
type RunEvent struct {
	// Done is how many operations of the clients on this host have ended so far, also those of the
	// warm-up and those that have failed; 0 during a load.
	Done   uint64     `json:"done,omitempty"`
	Result *kv.Result `json:"result,omitempty"`
}

// maxStoreClients bounds the clients of a run on one host.
const maxStoreClients = 1024

// runEvery is the interval at which progress is reported.
const runEvery = 500 * time.Millisecond

// run runs clients of a store. Each client is a thread with its own verbs objects on the same NIC.
func (s *stores) run(r *http.Request, in RunRequest, send func(RunEvent) error) error {
	desc, err := store.Find(cmp.Or(in.Store, store.Default().Name))
	if err != nil {
		return control.Errorf(http.StatusBadRequest, "%v", err)
	}
	in.MaxValue = max(in.Config.Value, kv.MinValue)
	clients, err := s.nodes[desc.Name].Clients(in.ClientOptions)
	if err != nil {
		return err
	}
	if in.Count < 1 || in.Count > maxStoreClients {
		return control.Errorf(http.StatusBadRequest, "%d clients on %s: want 1 to %d; fewer clients, or more compute hosts in the rack file", in.Count,
			s.h.self.Name, maxStoreClients)
	}
	ops, err := in.Ops()
	if err != nil {
		return control.Errorf(http.StatusBadRequest, "%v", err)
	}
	return s.app.do(r, "run "+in.Config.Workload.Name, func(ctx context.Context, v verbs.Context) error {
		s.meter.clients(in.Count)
		defer s.meter.clients(-in.Count)
		list := clients(v)
		run := &storeRun{in: in, ops: ops, rt: v.Runtime(), clients: list, ctx: ctx, meter: &s.meter, began: time.Now(), clock: v.Runtime().Now()}
		return errors.Join(run.all(send), list.Close())
	})
}

// Ops returns the operations of the trace, by client; nil if there is no trace.
func (in *RunRequest) Ops() (map[int][]kv.Op, error) {
	if len(in.Trace) == 0 {
		return nil, nil
	}
	list, err := trace.Unpack(in.Trace)
	if err != nil {
		return nil, err
	}
	ops := make(map[int][]kv.Op)
	for _, op := range list {
		ops[op.Client] = append(ops[op.Client], op)
	}
	return ops, nil
}

type storeRun struct {
	in      RunRequest
	ops     map[int][]kv.Op // operations of a trace, by client; nil means that there is no trace
	rt      verbs.Runtime
	clients store.Clients
	ctx     context.Context
	done    atomic.Uint64
	// began is the time at which the clock of the clients showed `clock`; both are those of the beginning.
	began time.Time
	clock clock.Time
	// meter counts each operation for the status of the host; see stores.meter.
	meter *meter

	mu     sync.Mutex // guards the fields below
	result kv.Result
	errs   []error
}

func (s *storeRun) all(send func(RunEvent) error) error {
	rt := s.rt
	for i := range s.in.Count {
		rt.Go(fmt.Sprintf("client-%d", s.in.First+i), func() { s.one(rt, s.in.First+i) })
	}
	ended := make(chan struct{})
	go func() { rt.Wait(); close(ended) }()
	tick := time.NewTicker(runEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = send(RunEvent{Done: s.done.Load()}) // if the client of the request disconnects, ctx ends
			continue
		case <-ended:
		}
		break
	}
	if s.result.Clients > 0 {
		if err := send(RunEvent{Done: s.done.Load(), Result: &s.result}); err != nil {
			return err
		}
	}
	return errors.Join(s.errs...)
}

func (s *storeRun) one(rt verbs.Runtime, id int) {
	note := func(took time.Duration) { s.meter.note(time.Now(), took) }
	res, err := s.in.Client(s.ctx, s.clients, rt, id, s.ops, note, func() { s.done.Add(1) })
	if err != nil {
		s.fail(err)
	}
	if res != nil {
		res.Stamp(s.began, s.clock)
		s.mu.Lock()
		s.result.Merge(res)
		s.mu.Unlock()
	}
}

// Client runs one client of a run from its connection to its end. ops is the result of Ops.
// observe, if not nil, is called with the latency of each operation that succeeds. ended, if not
// nil, is called when an operation has ended. A load calls neither of them. The client ends when ctx
// ends.
func (in *RunRequest) Client(
	ctx context.Context, clients store.Clients, rt verbs.Runtime, id int, ops map[int][]kv.Op, observe func(time.Duration), ended func(),
) (res *kv.Result, err error) {
	cfg := in.Config
	cfg.Client, cfg.Observe, cfg.Ended = id, observe, ended
	stop := func() bool { return ctx.Err() != nil }
	desc, err := store.Find(cmp.Or(in.Store, store.Default().Name))
	if err != nil {
		return nil, err
	}
	c, err := clients.Open(rt.Now().Add(max(store.Patience, cfg.Patience)))
	if err != nil {
		return nil, fmt.Errorf("client %d: %w", id, desc.NotOpened(err))
	}
	switch {
	case in.Load:
		res, err = kv.Load(untilEnded{c, ctx}, rt, cfg)
	case ops != nil:
		res, err = kv.Replay(c, rt, cfg, ops[id], stop)
	default:
		res, err = kv.Run(c, rt, cfg, stop)
	}
	if errors.Is(err, kv.ErrTooLarge) {
		err = fmt.Errorf("%w; give `run` a smaller --value-size%s", err, desc.HowToFit())
	}
	if err = errors.Join(err, c.Close()); err != nil {
		err = fmt.Errorf("client %d: %w", id, err)
	}
	return res, err
}

func (s *storeRun) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.errs) < 3 {
		s.errs = append(s.errs, err)
	}
}

// untilEnded is a store whose Insert returns an error when the job has ended.
type untilEnded struct {
	kv.Store
	ctx context.Context
}

func (u untilEnded) Timeline() *kv.Timeline { return kv.TimelineOf(u.Store) }

func (u untilEnded) Insert(key uint64, value []byte, deadline clock.Time) error {
	if err := store.Ended(u.ctx, "load"); err != nil {
		return err
	}
	return u.Store.Insert(key, value, deadline)
}
