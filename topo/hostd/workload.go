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

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// RunRequest asks a host to run clients of a store.
type RunRequest struct {
	// Store is clover or sherman; "": clover. Meta is the name of the metadata server's host, for clover.
	Store string `json:"store,omitempty"`
	Meta  string `json:"meta"`
	// First is the number of this host's first client, Count how many it runs. Config.Client is not used.
	First  int          `json:"first"`
	Count  int          `json:"count"`
	Config kv.RunConfig `json:"config"`
	// Share is how many clients of Clover share a queue pair to each memory server; 0 or 1: each has its own.
	Share int `json:"share,omitempty"`
	// Load inserts the clients' parts of the keys, and nothing else.
	Load bool `json:"load,omitempty"`
}

// RunEvent is one line of the answer.
type RunEvent struct {
	// Done is how many operations the host's clients have finished so far; of a load, 0.
	Done   uint64     `json:"done,omitempty"`
	Result *kv.Result `json:"result,omitempty"`
	Error  string     `json:"error,omitempty"`
}

// maxStoreClients bounds the clients of one host.
const maxStoreClients = 1024

// runEvery is how often progress is told.
const runEvery = 500 * time.Millisecond

// runStore runs clients, each as a thread with objects of its own on the same NIC.
func (h *Host) runStore(r *http.Request, in RunRequest, send func(RunEvent) error) error {
	opener, err := h.opener(in)
	if err != nil {
		return err
	}
	if in.Count < 1 || in.Count > maxStoreClients {
		return control.Errorf(http.StatusBadRequest, "%d clients on %s: want 1 to %d; fewer clients, or more compute hosts in the rack file", in.Count,
			h.self.Name, maxStoreClients)
	}
	return h.app.do(r, "run "+in.Config.Workload.Name, func(ctx context.Context, v verbs.Context) error {
		h.app.meter.clients(in.Count)
		defer h.app.meter.clients(-in.Count)
		open, end := opener(v)
		return errors.Join((&storeRun{in: in, rt: v.Runtime(), open: open, ctx: ctx, meter: &h.app.meter}).all(send), end())
	})
}

// opener says how clients of the store are opened in a verbs context, and what ends what they had together.
func (h *Host) opener(in RunRequest) (func(verbs.Context) (open func(clock.Time) (kv.Store, error), end func() error), error) {
	if in.Store == storeSherman {
		tree, err := h.treeOpener()
		return func(v verbs.Context) (func(clock.Time) (kv.Store, error), func() error) {
			return tree(v), func() error { return nil }
		}, err
	}
	addr, err := h.address(in.Meta)
	return func(v verbs.Context) (func(clock.Time) (kv.Store, error), func() error) {
		o := &cloverOpener{cfg: clover.Config{Context: v, Manager: h.conn, Meta: addr, MaxValue: max(in.Config.Value, kv.MinValue)}, share: in.Share}
		return func(deadline clock.Time) (kv.Store, error) { return o.open(deadline) }, o.close
	}, errors.Join(err, checkShare(in.Share))
}

// storeRun is the clients of one run on this host.
type storeRun struct {
	in   RunRequest
	rt   verbs.Runtime
	open func(clock.Time) (kv.Store, error)
	ctx  context.Context
	done atomic.Uint64
	// meter hears of each operation.
	meter *meter

	mu     sync.Mutex // guards what follows
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
			_ = send(RunEvent{Done: s.done.Load()}) // a client that has gone ends ctx
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

// one is one client's life.
func (s *storeRun) one(rt verbs.Runtime, id int) {
	cfg := s.in.Config
	cfg.Client, cfg.Observe = id, func(took time.Duration) { s.meter.note(time.Now(), took) }
	c, err := s.open(rt.Now().Add(max(storePatience, cfg.Patience)))
	if err != nil {
		s.fail(fmt.Errorf("client %d: %w; is the store up? `rdmalab %s start`", id, err, cmp.Or(s.in.Store, "clover")))
		return
	}
	var res *kv.Result
	if s.in.Load {
		err = kv.Load(untilEnded{c, s.ctx}, rt, cfg)
	} else {
		res, err = kv.Run(c, rt, cfg, func() bool { s.done.Add(1); return s.ctx.Err() != nil })
	}
	if err = errors.Join(err, c.Close()); err != nil {
		s.fail(fmt.Errorf("client %d: %w", id, err))
	}
	if res != nil {
		s.mu.Lock()
		s.result.Merge(res)
		s.mu.Unlock()
	}
}

func (s *storeRun) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.errs) < 3 {
		s.errs = append(s.errs, err)
	}
}

// untilEnded is a store that inserts nothing more when a job was ended.
type untilEnded struct {
	kv.Store
	ctx context.Context
}

// Insert inserts a key, unless the job was ended.
func (u untilEnded) Insert(key uint64, value []byte, deadline clock.Time) error {
	if err := ended(u.ctx, "load"); err != nil {
		return err
	}
	return u.Store.Insert(key, value, deadline)
}
