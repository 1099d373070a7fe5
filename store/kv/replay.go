package kv

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Op is one operation of a workload or trace.
type Op struct {
	// At is the time in the trace at which the operation is due. Client is the client that executes
	// it.
	At     time.Duration
	Client int
	Kind   Kind
	Key    uint64
	// Size is the length in bytes of the value that is written or, for KindScan, the number of
	// keys.
	Size int
}

// Replay executes the operations of one client of a trace, one after the other, as Run executes
// those of a workload. With Pace they are due at their times in the trace, divided by Pace. A key
// may be absent: an operation that does not find its key counts like other operations, as does an
// insert whose key exists. An update that does not find its key inserts it.
func Replay(s Store, rt verbs.Runtime, cfg RunConfig, ops []Op, stop func() bool) (*Result, error) {
	// Validate requires Keys, and Ops or a Duration. The replay uses none of them.
	cfg.Keys, cfg.Ops = max(1, cfg.Keys), uint64(len(ops))+1
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := newRunner(s, rt, cfg.withDefaults())
	c.misses = true
	return c.replay(ops, stop), nil
}

func (c *runner) replay(ops []Op, stop func() bool) *Result {
	begin := c.rt.Now()
	span := newSpan()
	for _, op := range ops {
		if stop != nil && stop() {
			break
		}
		start := c.rt.Now()
		if c.cfg.Pace > 0 {
			due := begin.Add(time.Duration(float64(op.At) / c.cfg.Pace))
			if due > start {
				c.rt.Sleep(due.Sub(start))
			}
			start = due
		}
		if c.once(op, start, start >= begin.Add(c.cfg.Warmup)) {
			span.grow(start, c.rt.Now())
		}
	}
	c.result.Span = span.length()
	return c.result
}

// Generate returns n operations that the clients of a workload would execute, at RunConfig.Rate for
// each client, or 1,000 per second if Rate is 0. The seed decides all of them. If stop is not nil,
// Generate calls it between operations, and ends early when it returns true.
func Generate(cfg RunConfig, n int, seed uint64, stop func() bool) []Op {
	cfg = cfg.withDefaults()
	period := time.Duration(float64(time.Second) / cmp.Or(cfg.Rate, 1000))
	ops := make([]Op, 0, n)
	for client := range min(cfg.Clients, n) {
		own := cfg
		own.Client = client
		c := &runner{cfg: own, rand: rand.New(rand.NewPCG(seed, uint64(client)))}
		c.keys = c.cfg.chooser()
		at := time.Duration(c.rand.Float64() * float64(period))
		for range (n - client + cfg.Clients - 1) / cfg.Clients {
			if stop != nil && stop() {
				return ops
			}
			op := c.next(at)
			op.At, op.Client = at, client
			if op.Kind == KindInsert {
				c.fresh++
			}
			c.ops++
			ops = append(ops, op)
			at += period
		}
	}
	slices.SortStableFunc(ops, func(a, b Op) int { return cmp.Compare(a.At, b.At) })
	return ops
}
