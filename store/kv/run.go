package kv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Load inserts this client's part of the keys: every Clients-th of them. A key that exists already
// stays as it is.
func Load(s Store, rt verbs.Runtime, cfg RunConfig) error {
	cfg = cfg.withDefaults()
	for key := uint64(cfg.Client); key < cfg.Keys; key += uint64(cfg.Clients) {
		err := s.Insert(key, MakeValue(key, key, cfg.Value), rt.Now().Add(cfg.Patience))
		if err != nil && !errors.Is(err, ErrExists) {
			return fmt.Errorf("load of key %d: %w", key, err)
		}
	}
	return nil
}

// Run runs the workload of one client. If stop is not nil, Run calls it between operations, and
// ends early when it returns true.
func Run(s Store, rt verbs.Runtime, cfg RunConfig, stop func() bool) (*Result, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := newRunner(s, rt, cfg.withDefaults())
	return c.run(stop), nil
}

// runner is the state of one client in Run.
type runner struct {
	cfg    RunConfig
	store  Store
	rt     verbs.Runtime
	rand   *rand.Rand
	zipf   *Zipf
	buf    []byte
	seq    uint64
	fresh  uint64 // keys inserted by this client
	result *Result
}

func newRunner(s Store, rt verbs.Runtime, cfg RunConfig) *runner {
	r := rt.Rand()
	c := &runner{
		cfg: cfg, store: s, rt: rt, rand: rand.New(rand.NewPCG(r.Uint64(), r.Uint64())), zipf: NewZipf(cfg.Keys, cfg.Zipf),
		buf: make([]byte, 0, cfg.Value), result: &Result{Clients: 1},
	}
	if cfg.Scramble {
		c.zipf.Scramble(scrambleSeed)
	}
	return c
}

// scrambleSeed is the same for all clients of all runs: which keys are popular does not matter, but
// they must be the same ones.
const scrambleSeed = 0x5eed

func (c *runner) run(stop func() bool) *Result {
	begin := c.rt.Now()
	counted := begin.Add(c.cfg.Warmup)
	end := clock.Never
	if c.cfg.Duration > 0 {
		end = counted.Add(c.cfg.Duration)
	}
	due := begin
	if c.cfg.Rate > 0 {
		due = begin.Add(time.Duration(c.rand.Float64() * float64(c.period())))
	}
	var first, last clock.Time
	for (c.cfg.Ops == 0 || c.result.Total() < c.cfg.Ops) && (stop == nil || !stop()) {
		start := c.rt.Now()
		if c.cfg.Rate > 0 {
			if due > start {
				c.rt.Sleep(due.Sub(start))
			}
			start = due
			due = due.Add(c.period())
		}
		if start >= end {
			break
		}
		if c.once(start, start >= counted) {
			if first == 0 {
				first = start
			}
			last = c.rt.Now()
		}
	}
	c.result.Span = max(0, last.Sub(first))
	return c.result
}

func (c *runner) period() time.Duration { return time.Duration(float64(time.Second) / c.cfg.Rate) }

// once makes one operation and reports whether it was counted.
func (c *runner) once(start clock.Time, counted bool) bool {
	kind := c.cfg.Workload.pick(c.rand.Float64())
	cost, err := c.do(kind, c.rt.Now().Add(c.cfg.Patience))
	switch {
	case errors.Is(err, ErrNotFound):
		c.result.NotFound++
	case errors.Is(err, ErrValue):
		c.result.Wrong++
	case err != nil:
		c.result.Failed++
	}
	if err != nil && c.result.FirstError == "" {
		c.result.FirstError = fmt.Sprintf("%v: %v", kind, err)
	}
	if err != nil {
		return false
	}
	took := c.rt.Now().Sub(start)
	if c.cfg.Observe != nil {
		c.cfg.Observe(took)
	}
	if !counted {
		return false
	}
	c.result.note(kind, took, cost)
	return true
}

func (c *runner) do(kind Kind, deadline clock.Time) (Cost, error) {
	switch kind {
	case KindUpdate:
		key := c.key()
		err := c.store.Put(key, c.value(key), deadline)
		return c.store.Last(), err
	case KindInsert:
		c.fresh++
		key := c.cfg.Keys + (c.fresh-1)*uint64(c.cfg.Clients) + uint64(c.cfg.Client)
		err := c.store.Insert(key, c.value(key), deadline)
		return c.store.Last(), err
	case KindScan:
		return c.scan(deadline)
	case KindReadModify:
		key := c.key()
		if err := c.read(key, deadline); err != nil {
			return c.store.Last(), err
		}
		cost := c.store.Last()
		err := c.store.Put(key, c.value(key), deadline)
		w := c.store.Last()
		return Cost{RTTs: cost.RTTs + w.RTTs, RPCs: cost.RPCs + w.RPCs, Retries: w.Retries}, err
	default:
		err := c.read(c.key(), deadline)
		return c.store.Last(), err
	}
}

func (c *runner) read(key uint64, deadline clock.Time) error {
	v, err := c.store.Get(key, c.buf, deadline)
	if err != nil {
		return err
	}
	c.buf = v[:0]
	if c.cfg.Verify {
		_, err = CheckValue(key, v)
	}
	return err
}

func (c *runner) scan(deadline clock.Time) (Cost, error) {
	s, ok := c.store.(Scanner)
	if !ok {
		return Cost{}, errors.New("the store cannot scan: choose another workload than e")
	}
	err := s.Scan(c.key(), 1+c.rand.IntN(c.cfg.ScanLen), func(uint64, []byte) bool { return true }, deadline)
	return s.Last(), err
}

// key draws a key. With Latest, the newest keys of this client are the most popular.
func (c *runner) key() uint64 {
	k := c.zipf.Next(c.rand)
	if !c.cfg.Workload.Latest {
		return k
	}
	if k < c.fresh {
		return c.cfg.Keys + (c.fresh-1-k)*uint64(c.cfg.Clients) + uint64(c.cfg.Client)
	}
	return (c.cfg.Keys + c.fresh - 1 - k) % c.cfg.Keys
}

func (c *runner) value(key uint64) []byte {
	c.seq++
	return MakeValue(key, uint64(c.cfg.Client+1)<<40|c.seq, c.cfg.Value)
}
