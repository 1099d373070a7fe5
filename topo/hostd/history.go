package hostd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Bounds of the numbers in a store.HistoryRequest. checkPatience is how long one operation of a
// client may take.
const (
	maxCheckClients = 64
	maxCheckRounds  = 10_000
	maxCheckKeys    = 1 << 20 // more than all clients can use in all rounds
	maxCheckValue   = 1 << 20 // bytes
	checkPatience   = 10 * time.Second
)

// history lets clients of a store work on in.Keys shared keys, and checks whether their history is
// linearizable.
func (s *stores) history(r *http.Request, desc *store.Store, in store.HistoryRequest) (out store.Verdict, err error) {
	if in.Clients < 1 || in.Clients > maxCheckClients || in.Rounds < 1 || in.Rounds > maxCheckRounds || in.Keys < 1 || in.Keys > maxCheckKeys {
		return out, control.Errorf(http.StatusBadRequest, "%d clients, %d rounds, %d keys: want 1 to %d clients, 1 to %d rounds and 1 to %d keys",
			in.Clients, in.Rounds, in.Keys, maxCheckClients, maxCheckRounds, maxCheckKeys)
	}
	if in.Value < 0 || in.Value > maxCheckValue {
		return out, control.Errorf(http.StatusBadRequest, "values of %d bytes: want at most %d", in.Value, maxCheckValue)
	}
	if in.Every < 0 || in.Every > store.MaxEvery {
		return out, control.Errorf(http.StatusBadRequest, "a pause of %v between operations: want at most %v", in.Every, store.MaxEvery)
	}
	clients, err := s.nodes[desc.Name].Clients(in.ClientOptions)
	if err != nil {
		return out, err
	}
	began := time.Now()
	err = s.app.do(r, desc.Name+" check", func(ctx context.Context, v verbs.Context) error {
		h := &history{desc: desc, in: in, ctx: ctx, rt: v.Runtime(), ops: kv.NewHistory()}
		h.ops.Guard = &h.mu
		if in.Loss {
			h.ops.Loss(h.rt.Now(), kv.Anywhere)
		}
		for i := range in.Keys {
			h.keys = append(h.keys, in.Base+uint64(i))
		}
		list := clients(v)
		defer s.checks.add(h)()
		var err error
		out, err = h.run(list)
		return errors.Join(err, list.Close())
	})
	out.Took = time.Since(began)
	return out, store.HTTPError(err)
}

// history is one run of clients whose history is checked. It collects the operations of the clients
// and the answers.
type history struct {
	desc *store.Store
	in   store.HistoryRequest
	keys []uint64
	ctx  context.Context
	rt   verbs.Runtime
	over atomic.Bool // the clients are to end

	mu            sync.Mutex // guards the fields below, and ops
	ops           *kv.History
	unknown, lost int // operations that ended without an answer, and those whose key was lost
	err           error
}

// checks are the histories that are being made.
type checks struct {
	mu      sync.Mutex
	running map[*history]bool
}

// add adds a history, until the function that it returns is called.
func (c *checks) add(h *history) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		c.running = make(map[*history]bool)
	}
	c.running[h] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.running, h)
	}
}

// end ends the clients of all histories of a store.
func (c *checks) end(desc *store.Store) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for h := range c.running {
		if h.desc.Name == desc.Name {
			h.over.Store(true)
		}
	}
}

// run runs the clients concurrently, and checks their history. The verdict has the number of
// operations even if the error says that the history could not be checked.
func (h *history) run(clients store.Clients) (out store.Verdict, err error) {
	for i := range h.in.Clients {
		h.rt.Go(fmt.Sprintf("check-%d", i), func() {
			err := h.client(clients, i)
			h.mu.Lock()
			defer h.mu.Unlock()
			h.err = errors.Join(h.err, err)
		})
	}
	h.rt.Wait()
	out.Operations, out.Unknown, out.Lost = h.ops.Len(), h.unknown, h.lost
	if h.err != nil {
		return out, h.err
	}
	if err := store.Ended(h.ctx, "check"); err != nil { // the application has crashed, or the client of the request has disconnected
		return out, err
	}
	if err := h.ops.Check(kv.MostStates); err != nil {
		out.Why = err.Error()
		out.Undecided = errors.Is(err, kv.ErrUndecided)
		out.OnlyLost = h.lost > 0 && !h.in.Loss && !out.Undecided && h.ops.LossExplains(kv.MostStates)
	}
	out.Linearizable = out.Why == ""
	return out, nil
}

// client opens the store for one client, executes its operations and records each in the history,
// and closes the store.
func (h *history) client(clients store.Clients, id int) error {
	c, err := clients.Open(h.rt.Now().Add(max(checkPatience, h.desc.JoinPatience())))
	if err != nil {
		return fmt.Errorf("client %d: %w", id, h.desc.NotOpened(err))
	}
	size := h.in.Value
	if b, ok := c.(store.Bounded); ok && size == 0 {
		if size = b.MaxValue(); size < kv.MinValue {
			return errors.Join(control.Errorf(http.StatusConflict, "a history needs values of %d bytes, the store has %d%s", kv.MinValue, size, h.desc.HowToFit()), c.Close())
		}
	}
	rec := kv.Record(c, h.ops, id, h.rt.Now)
	rnd := rand.New(rand.NewPCG(h.in.Seed, uint64(id)))
	_, scans := c.(kv.Scanner)
	for range h.in.Rounds {
		if h.ctx.Err() != nil || h.over.Load() {
			break
		}
		if h.in.Every > 0 {
			h.rt.Sleep(h.in.Every)
		}
		err := h.round(rec, rnd, size, scans)
		if errors.Is(err, kv.ErrValue) || errors.Is(err, kv.ErrScan) || errors.Is(err, kv.ErrClosed) || errors.Is(err, verbs.ErrClosed) ||
			h.desc.Broken != nil && errors.Is(err, h.desc.Broken) {
			return errors.Join(err, c.Close())
		}
	}
	return errors.Join(rec.Err(), c.Close())
}

// mix holds the cumulative probabilities of get, put, insert and scan, in this order. The remaining
// operations are deletes.
type mix struct{ get, put, insert, scan float64 }

// The mixes for stores without and with an order of keys. About half of the operations read, and
// most of the others put or insert.
var (
	unordered = mix{get: 0.5, put: 0.9, insert: 0.96, scan: 0.96}
	ordered   = mix{get: 0.45, put: 0.75, insert: 0.9, scan: 0.94}
)

// round performs one random operation. If that is a put which finds no key, round inserts the key.
// It also inserts a key that a put has found to be lost. In a store with scans it does that only if
// h.in.Loss is true, that is, if memory servers may crash.
func (h *history) round(c *kv.Recorded, r *rand.Rand, size int, scans bool) error {
	key := h.keys[r.IntN(len(h.keys))]
	deadline := h.rt.Now().Add(checkPatience)
	m := unordered
	if scans {
		m = ordered
	}
	var err error
	switch x := r.Float64(); {
	case x < m.get:
		_, err = c.Get(key, nil, deadline)
	case x < m.put:
		err = c.Put(key, c.Value(key, size), deadline)
		if errors.Is(err, kv.ErrNotFound) || (h.in.Loss || !scans) && errors.Is(err, kv.ErrLost) {
			err = c.Insert(key, c.Value(key, size), deadline)
		}
	case x < m.insert:
		err = c.Insert(key, c.Value(key, size), deadline)
	case x < m.scan:
		err = c.Scan(h.keys, key, 1+r.IntN(len(h.keys)), deadline)
	default:
		err = c.Delete(key, deadline)
	}
	return h.counted(c, err)
}

// counted counts an operation that ended with err, if its outcome is unknown or its key was lost.
// It returns err, joined with the error of the recorder if a value was read that no client wrote.
func (h *history) counted(c *kv.Recorded, err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case errors.Is(err, kv.ErrTimeout):
		h.unknown++
	case errors.Is(err, kv.ErrLost):
		h.lost++
	}
	return errors.Join(err, c.Err())
}
