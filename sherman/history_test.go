package sherman_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// trial is one run of clients on a few keys under faults, whose history must be linearizable.
type trial struct {
	seed    uint64
	shape   layout.Shape
	nodes   sherman.NodeConfig
	rules   []fault.Rule
	keys    uint64
	rounds  int
	inject  func(g *rig, r *rand.Rand) // is called at a random time
	history *kv.History
	stats   []*sherman.Node
	unknown int
	lax     bool // the trial looks for wrong values only, and ignores operations that fail
	// post, if set, plants a bug.
	post func(wrs []verbs.SendWR) []verbs.SendWR
}

const opPatience = 2 * time.Second

// run returns the error of the check of the history.
func (tr *trial) run(t *testing.T) error {
	t.Helper()
	r := rand.New(rand.NewPCG(tr.seed, 77))
	g := newRig(t, simrack.Options{Seed: tr.seed, Datagrams: tr.seed%3 == 0, Delay: time.Duration(200 + r.IntN(3000))}, region)
	g.format(sherman.FormatConfig{Shape: tr.shape, Chunk: 4096, Locks: 1 + r.IntN(64), HostLocks: tr.seed%4 == 1})
	for _, h := range g.Hosts() {
		var rules []fault.Rule
		for _, f := range tr.rules {
			if f.Link = h.Spec.Name; f.Kind != fault.Tear || h.Spec.Name[0] == 'm' {
				rules = append(rules, f)
			}
		}
		h.SetFaults(rules)
	}
	tr.history = kv.NewHistory()
	for i := range 3 {
		n := g.node(tr.nodes)
		tr.stats = append(tr.stats, n)
		for j := range 1 + r.IntN(3) {
			tr.client(g, n, 3*i+j, r.Uint64())
		}
	}
	if tr.inject != nil {
		g.At(g.Now().Add(time.Duration(r.Int64N(int64(3*time.Millisecond)))), func() { tr.inject(g, r) })
	}
	if err := g.Run(); err != nil {
		return err
	}
	return tr.history.Check(kv.MostStates)
}

func (tr *trial) client(g *rig, n *sherman.Node, id int, seed uint64) {
	h := g.Host(fmt.Sprintf("cn%d", id/3))
	h.Go("client", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		cfg := sherman.Config{Context: ctx, Manager: h.Manager(ctx), Params: rdmacm.Params{PathMTU: verbs.MTU256, Timeout: 7}}
		if tr.post != nil {
			cfg.Context = bent{ctx, tr.post}
		}
		c, err := n.Open(cfg, rt.Now().Add(20*time.Second))
		if err != nil {
			g.t.Errorf("seed %d: open: %v", tr.seed, err)
			return
		}
		r := rand.New(rand.NewPCG(seed, 1))
		s := kv.Record(c, tr.history, id, rt.Now)
		for range tr.rounds {
			if err := tr.round(s, c, r, rt); err != nil && !tr.lax {
				g.t.Errorf("seed %d: client %d: %v", tr.seed, id, err)
				break
			}
		}
		if err := c.Close(); err != nil && !tr.lax {
			g.t.Errorf("seed %d: close: %v", tr.seed, err)
		}
	})
}

func (tr *trial) round(s *kv.Recorded, c *sherman.Client, r *rand.Rand, rt verbs.Runtime) error {
	key := r.Uint64N(tr.keys)
	began := rt.Now()
	deadline := began.Add(opPatience)
	var err error
	switch r.IntN(8) {
	case 0, 1, 2:
		_, err = s.Get(key, nil, deadline)
	case 3, 4:
		err = s.Put(key, s.Value(key, 16), deadline)
	case 5, 6:
		err = s.Insert(key, s.Value(key, 16), deadline)
	default:
		err = s.Delete(key, deadline)
	}
	if took := rt.Now().Sub(began); took > opPatience+200*time.Millisecond {
		return fmt.Errorf("an operation took %v", took)
	}
	if errors.Is(err, kv.ErrTimeout) {
		tr.unknown++
		return nil
	}
	if err == nil || errors.Is(err, kv.ErrNotFound) || errors.Is(err, kv.ErrExists) {
		return s.Err()
	}
	return err
}

var mixes = map[string][]fault.Rule{
	"clean": nil,
	"loss":  {{Kind: fault.Loss, Probability: 0.02}},
	"heavy": {
		{Kind: fault.Loss, Probability: 0.05},
		{Kind: fault.Duplicate, Probability: 0.05, Delay: 50 * time.Microsecond},
		{Kind: fault.Delay, Probability: 0.1, Delay: 100 * time.Microsecond},
	},
	"torn": {{Kind: fault.Tear, Probability: 0.4, Delay: 20 * time.Microsecond}},
	"all": {
		{Kind: fault.Loss, Probability: 0.02},
		{Kind: fault.Duplicate, Probability: 0.05, Delay: 300 * time.Microsecond},
		{Kind: fault.Delay, Probability: 0.05, Delay: 200 * time.Microsecond},
		{Kind: fault.Tear, Probability: 0.3, Delay: 20 * time.Microsecond},
	},
}

// Histories are linearizable under faults of links and torn copies.
func TestHistoriesUnderFaults(t *testing.T) {
	for name, rules := range mixes {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(3) {
				tr := trial{
					seed: seed + 1, shape: layout.Shape{Page: 256 << (seed % 2), Value: 16}, rules: rules,
					keys: 4 + seed*8, rounds: 40, nodes: sherman.NodeConfig{HandOver: int(seed%3) * 4},
				}
				if err := tr.run(t); err != nil {
					t.Errorf("seed %d: %v", tr.seed, err)
				}
				if testing.Verbose() {
					t.Logf("seed %d: %d unknown of %d; %+v", tr.seed, tr.unknown, tr.history.Len(), tr.stats[0].Stats())
				}
			}
		})
	}
}

// Histories are linearizable with clients that die at any moment, with all of their locks.
func TestHistoriesWithDeadClients(t *testing.T) {
	for seed := range uint64(7) {
		tr := trial{
			seed: seed + 100, shape: layout.Shape{Page: 256, Value: 16}, keys: 4 + seed*4, rounds: 40,
			rules: mixes[[]string{"clean", "loss", "all"}[seed%3]],
			nodes: sherman.NodeConfig{Lease: 3 * time.Millisecond},
			inject: func(g *rig, r *rand.Rand) {
				victim := g.Host(fmt.Sprintf("cn%d", r.IntN(3)))
				if r.IntN(2) == 0 {
					victim.CrashApps()
					return
				}
				victim.Crash()
			},
		}
		if err := tr.run(t); err != nil {
			t.Errorf("seed %d: %v", tr.seed, err)
		}
		for _, n := range tr.stats {
			if testing.Verbose() {
				t.Logf("seed %d: %+v", tr.seed, n.Stats())
			}
		}
	}
}

// Hosts that stop for longer than the lease are fenced; their operations in flight have no effect,
// or their outcome is known.
func TestHistoriesWithHungNodes(t *testing.T) {
	for seed := range uint64(5) {
		tr := trial{
			seed: seed + 200, shape: layout.Shape{Page: 256, Value: 16}, keys: 4 + seed*2, rounds: 40,
			rules: mixes[[]string{"clean", "heavy"}[seed%2]],
			nodes: sherman.NodeConfig{Lease: 2 * time.Millisecond},
			inject: func(g *rig, r *rand.Rand) {
				victim := g.Host(fmt.Sprintf("cn%d", r.IntN(3)))
				if r.IntN(2) == 0 {
					victim.Hang()
					g.At(g.Now().Add(10*time.Millisecond), victim.Resume)
					return
				}
				victim.SetLink(false)
				g.At(g.Now().Add(10*time.Millisecond), func() { victim.SetLink(true) })
			},
		}
		if err := tr.run(t); err != nil {
			t.Errorf("seed %d: %v", tr.seed, err)
		}
	}
}
