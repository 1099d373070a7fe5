package simrack

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/costs"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// verify runs the test verify of package perf on a lossy rack. It returns the digest of the trace
// and the time at which the test ended.
func verify(t *testing.T, opt Options) (uint64, clock.Time) {
	t.Helper()
	var h simnet.Hash
	opt.Trace = h.Add
	r := newRack(t, small+"faults: [{link: cn0, kind: loss, probability: 2%}]\n", opt)
	serve(t, r.Host("ms0"))
	cn := r.Host("cn0")
	cn.Go("client", false, func(ctx verbs.Context) {
		cfg := perf.Config{Test: "verify", Iters: 50, Atomics: 50, Verify: true, Hooks: perf.Hooks{Counters: cn.Counters}, To: "ms0"}
		if _, err := perf.Run(ctx, cn.Manager(ctx), r.Host("ms0").Addr(), cfg, nil); err != nil {
			t.Error(err)
		}
	})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	return h.Sum(), r.Now()
}

// A model whose costs are all zero gives the same trace as no model.
func TestAFreeModelIsNoModel(t *testing.T) {
	opt := Options{Delay: time.Microsecond, Queue: 1024}
	want, _ := verify(t, opt)
	opt.Cost = new(cost.Model)
	if got, _ := verify(t, opt); got != want {
		t.Errorf("digest %x with a model that costs nothing, %x without", got, want)
	}
}

// With costs, two runs of a seed are equal, and operations take longer.
func TestCostsAreDeterministic(t *testing.T) {
	m, err := costs.Builtin("connectx5")
	if err != nil {
		t.Fatal(err)
	}
	_, free := verify(t, Options{Delay: time.Nanosecond})
	a, end := verify(t, Options{Cost: m})
	b, _ := verify(t, Options{Cost: m})
	if a != b {
		t.Errorf("digests %x and %x of one seed", a, b)
	}
	if end <= free {
		t.Errorf("ended at %v with costs and at %v without", end, free)
	}
}

func TestAModelOutOfBoundsIsRefused(t *testing.T) {
	r := newRack(t, small, Options{})
	if _, err := New(r.Spec, Options{Cost: &cost.Model{Switch: cost.Switch{Cores: -1}}}); err == nil {
		t.Error("a switch with -1 cores was built")
	}
}

// A thread that posts or polls spends the model's time for that.
func TestClientsPayForTheirCalls(t *testing.T) {
	m := &cost.Model{Client: cost.Client{Post: 30, Poll: 20}}
	r := newRack(t, small, Options{Cost: m, Delay: time.Microsecond})
	cn := r.Host("cn0")
	cn.Go("client", false, func(ctx verbs.Context) {
		c := newConn(t, ctx)
		if err := c.qp.ToInit(verbs.ToInit{}); err != nil {
			t.Error(err)
		}
		begin := ctx.Runtime().Now()
		recv := verbs.RecvWR{SGL: []verbs.SGE{c.mr.SGE(0, 8)}}
		if err := c.qp.PostRecv(recv, recv, recv); err != nil {
			t.Error(err)
		}
		if took := ctx.Runtime().Now().Sub(begin); took != 90 {
			t.Errorf("posting three receives took %v, want 90ns", took)
		}
		begin = ctx.Runtime().Now()
		if _, err := c.cq.Poll(make([]verbs.WC, 1)); err != nil {
			t.Error(err)
		}
		if took := ctx.Runtime().Now().Sub(begin); took != 20 {
			t.Errorf("a poll took %v, want 20ns", took)
		}
	})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
}

// A restarted NIC has no work in progress.
func TestARestartedNICIsIdle(t *testing.T) {
	m := &cost.Model{NIC: cost.NIC{Write: cost.Verb{Total: 1}}}
	r := newRack(t, small, Options{Cost: m})
	h := r.Host("ms0")
	before := h.card
	h.CrashNIC()
	h.RestartNIC()
	if h.card == before {
		t.Error("the card of the crashed NIC is still in use")
	}
}
