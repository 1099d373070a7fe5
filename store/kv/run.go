package kv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sort"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Load inserts this client's part of the keys: every Clients-th key, one after the other. A key
// that exists already keeps its value, and Result.Existed counts it. The result has the inserts and
// their latencies. After an error the result has everything up to the error.
func Load(s Store, rt verbs.Runtime, cfg RunConfig) (*Result, error) {
	if err := cfg.validLoad(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	res, began, line := &Result{Clients: 1}, rt.Now(), TimelineOf(s)
	for key := uint64(cfg.Client); key < cfg.Keys; key += uint64(cfg.Clients) {
		start := rt.Now()
		line.begin(start)
		err := s.Insert(key, MakeValue(key, key, cfg.size(rt.Rand())), start.Add(cfg.Patience))
		switch {
		case errors.Is(err, ErrExists):
			res.Existed++
		case err != nil:
			return res, fmt.Errorf("load of key %d: %w", key, err)
		default:
			end := rt.Now()
			res.note(KindInsert, end.Sub(start), s.Last())
			res.spend(KindInsert, 0, line.end(end))
		}
		res.Span = rt.Now().Sub(began)
	}
	return res, nil
}

// Run runs the workload of one client. If stop is not nil, Run calls it between operations, and
// ends early when it returns true.
func Run(s Store, rt verbs.Runtime, cfg RunConfig, stop func() bool) (*Result, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := newRunner(s, rt, cfg.withDefaults())
	return c.run(stop)
}

// runner is the state of one client in Run, Replay or Generate.
type runner struct {
	cfg   RunConfig
	store Store
	line  *Timeline // nil means that the store has no timeline
	rt    verbs.Runtime
	rand  *rand.Rand
	keys  *chooser
	buf   []byte // memory for a value that is read
	seq   uint64 // number of values that the client has made
	ops   uint64 // number of operations that it has begun
	// misses is true if keys may be absent, because clients delete them. An operation that does not
	// find its key counts like other operations.
	misses bool
	fresh  uint64 // how many keys after the loaded ones this client has inserted
	result *Result
}

func newRunner(s Store, rt verbs.Runtime, cfg RunConfig) *runner {
	r := rt.Rand()
	c := &runner{
		cfg: cfg, store: s, line: TimelineOf(s), rt: rt, rand: rand.New(rand.NewPCG(r.Uint64(), r.Uint64())), misses: cfg.Workload.Delete > 0,
		buf: make([]byte, 0, cfg.Value), result: &Result{Clients: 1},
	}
	c.keys = c.cfg.chooser()
	return c
}

func (c *runner) run(stop func() bool) (*Result, error) {
	if c.cfg.Workload.Insert > 0 {
		var err error
		if c.fresh, err = c.inserted(stop); err != nil {
			return nil, err
		}
	}
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
	span := newSpan()
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
		if c.once(c.next(c.rt.Now().Sub(begin)), start, start >= counted) {
			if c.cfg.Duration > 0 {
				c.result.Halves[min(1, 2*start.Sub(counted)/c.cfg.Duration)]++
			}
			span.grow(start, c.rt.Now())
		}
	}
	c.result.Span = span.length()
	return c.result, nil
}

// span is the time from the beginning of the first counted operation to the end of the last one.
type span struct{ first, last clock.Time }

func newSpan() span { return span{first: clock.Never} }

func (s *span) grow(start, end clock.Time) { s.first, s.last = min(s.first, start), max(s.last, end) }

func (s *span) length() time.Duration {
	if s.first == clock.Never {
		return 0
	}
	return s.last.Sub(s.first)
}

func (c *runner) period() time.Duration { return time.Duration(float64(time.Second) / c.cfg.Rate) }

// next draws the next operation. `since` is the time since the client began.
func (c *runner) next(since time.Duration) Op {
	op := Op{Kind: c.cfg.Workload.pick(c.rand.Float64())}
	if op.Kind == KindInsert {
		op.Key = c.own(c.fresh)
	} else {
		op.Key = c.key(since)
	}
	switch op.Kind {
	case KindUpdate, KindInsert, KindReadModify:
		op.Size = c.cfg.size(c.rand)
	case KindScan:
		op.Size = 1 + c.rand.IntN(c.cfg.ScanLen)
	default: // the operation writes no value
	}
	return op
}

// once executes one operation, which was due at start. It returns true if the operation was
// counted.
func (c *runner) once(op Op, start clock.Time, counted bool) bool {
	kind, began := op.Kind, c.rt.Now()
	record := counted && len(c.result.Spans) < c.cfg.Spans
	if c.line != nil {
		c.line.parts.on = record
	}
	c.line.begin(began)
	cost, err := c.do(op, began.Add(c.cfg.Patience))
	end := c.rt.Now()
	spent := c.line.end(end)
	if record {
		c.span(op, start, began, end, cost, err)
	}
	c.ops++
	c.ended()
	switch {
	case c.misses && errors.Is(err, ErrNotFound):
		c.result.NotFound++
		err = nil
	case errors.Is(err, ErrNotFound):
		c.result.NotFound++
	case errors.Is(err, ErrValue):
		c.result.Wrong++
	case kind == KindInsert && errors.Is(err, ErrExists):
		if c.result.Existed++; c.misses {
			err = nil // counted like an operation that does not find its key
		}
	case err != nil:
		c.result.Failed++
	}
	if err != nil && c.result.FirstError == "" {
		c.result.FirstError = fmt.Sprintf("%v: %v", kind, err)
	}
	if err != nil {
		return false
	}
	took := end.Sub(start)
	if c.cfg.Observe != nil {
		c.cfg.Observe(took)
	}
	if !counted {
		return false
	}
	c.result.note(kind, took, cost)
	c.result.spend(kind, began.Sub(start), spent)
	if c.cfg.Rate > 0 || c.cfg.Pace > 0 {
		c.result.record(queue, began.Sub(start))
	}
	return true
}

func (c *runner) ended() {
	if c.cfg.Ended != nil {
		c.cfg.Ended()
	}
}

func (c *runner) do(op Op, deadline clock.Time) (Cost, error) {
	switch op.Kind {
	case KindUpdate:
		return c.set(op.Key, c.value(op), deadline)
	case KindDelete:
		err := c.store.Delete(op.Key, deadline)
		return c.store.Last(), err
	case KindInsert:
		err := c.store.Insert(op.Key, c.value(op), deadline)
		if err == nil || errors.Is(err, ErrExists) {
			c.fresh++ // after another error the next insert tries this key again
		}
		return c.store.Last(), err
	case KindScan:
		return c.scan(op, deadline)
	case KindReadModify:
		err := c.read(op.Key, deadline)
		cost := c.store.Last()
		if err != nil && (!c.misses || !errors.Is(err, ErrNotFound)) {
			return cost, err
		}
		// A repetition of the read is not a write that failed, so it must not count in FirstTry.
		cost.Retries = 0
		w, err := c.set(op.Key, c.value(op), deadline)
		cost.Add(w)
		return cost, err
	default:
		err := c.read(op.Key, deadline)
		return c.store.Last(), err
	}
}

// MaxClients is the largest number of clients in a run.
const MaxClients = 1 << 16

// own returns the n-th key after the loaded ones that this client inserts. It does not depend on
// the number of clients. So a later run with more or fewer clients finds no gaps between the keys
// of a client.
func (c *runner) own(n uint64) uint64 { return c.cfg.Keys + n*MaxClients + uint64(c.cfg.Client) }

// maxInserted is the number of keys after which inserted stops its search.
const maxInserted = 1 << 40

// inserted returns how many of the client's own keys exist already, because an earlier run has
// inserted them. It searches for the first key that does not exist: first in steps that double,
// then between the last two keys that it has tried. A key whose value was lost counts as absent.
// The search ends early when stop returns true.
func (c *runner) inserted(stop func() bool) (uint64, error) {
	var failed error
	get := func(n uint64) bool {
		if failed != nil || stop != nil && stop() {
			return false
		}
		_, err := c.store.Get(c.own(n), c.buf, c.rt.Now().Add(c.cfg.Patience))
		c.ended()
		if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrLost) {
			failed = fmt.Errorf("search for keys that an earlier run has inserted: key %d: %w", c.own(n), err)
		}
		return err == nil
	}
	n, step := uint64(0), uint64(1) // all keys below n exist
	for n+step < maxInserted && get(n+step-1) {
		n, step = n+step, 2*step
	}
	n += uint64(sort.Search(int(step-1), func(i int) bool { return !get(n + uint64(i)) }))
	return n, failed
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

func (c *runner) scan(op Op, deadline clock.Time) (Cost, error) {
	s, ok := c.store.(Scanner)
	if !ok {
		return Cost{}, errors.New("the store cannot scan: choose a workload without scans")
	}
	err := s.Scan(op.Key, op.Size, func(uint64, []byte) bool { return true }, deadline)
	return s.Last(), err
}

// key returns the key of an operation: with ShapeOwn the next key of the client's part, otherwise a
// random key. With ShapeLatest, this client's newest keys are the most popular.
func (c *runner) key(since time.Duration) uint64 {
	if c.keys.shape == ShapeOwn {
		clients, client := uint64(c.cfg.Clients), uint64(c.cfg.Client)
		return client + c.ops%max(1, (c.cfg.Keys+clients-1-client)/clients)*clients
	}
	k := c.keys.draw(c.rand, since, c.ops)
	switch {
	case c.keys.shape != ShapeLatest:
		return k
	case k < c.fresh:
		return c.own(c.fresh - 1 - k)
	}
	return (c.cfg.Keys + c.fresh - 1 - k) % c.cfg.Keys
}

func (c *runner) value(op Op) []byte {
	c.seq++
	return MakeValue(op.Key, uint64(c.cfg.Client+1)<<40|c.seq, op.Size)
}
