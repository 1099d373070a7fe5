package simrack

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const leaves = `
name: leaves
fabric: {leaves: 3, spines: 2}
hosts:
  - {name: "cn[0-3]", role: compute}
  - {name: ms0, role: memory, leaf: leaf1}
`

// verifyAll lets each client check bytes and atomics of ms0.
func verifyAll(t *testing.T, r *Rack) error {
	t.Helper()
	serve(t, r.Host("ms0"))
	for _, h := range r.Hosts() {
		if h.Spec.Name == "ms0" {
			continue
		}
		h.Go("client", false, func(ctx verbs.Context) {
			cfg := perf.Config{Test: "verify", Iters: 50, Atomics: 50, Verify: true, Hooks: perf.Hooks{Counters: h.Counters}, To: "ms0"}
			if _, err := perf.Run(ctx, h.Manager(ctx), r.Host("ms0").Addr(), cfg, nil); err != nil {
				t.Errorf("%s: %v", h.Spec.Name, err)
			}
		})
	}
	return r.Run()
}

// sent returns how many frames the trunks have carried, by name.
func sent(r *Rack) map[string]uint64 {
	out := make(map[string]uint64)
	for _, l := range r.fabric.trunks {
		out[l.Name()] = l.link.Stats(fault.Up).Delivered + l.link.Stats(fault.Down).Delivered
	}
	return out
}

// Hosts of all leaves reach each other, over more than one spine.
func TestFabric(t *testing.T) {
	r := newRack(t, leaves, Options{Datagrams: true})
	if err := verifyAll(t, r); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for name, n := range sent(r) {
		if leaf, spine, _ := strings.Cut(name, "-"); n > 0 {
			used[leaf], used[spine] = true, true
		}
	}
	if len(used) != 5 {
		t.Errorf("trunks have carried %v", sent(r))
	}
	if p := r.Host("ms0").Ingress(); p.RxRoCE == 0 || p.TxPackets == 0 {
		t.Errorf("the port of ms0: %+v", p)
	}
}

// While a trunk is down, all connections take the other spine; none breaks, and none uses it.
func TestTrunkDown(t *testing.T) {
	r := newRack(t, leaves, Options{Datagrams: true})
	for _, name := range []string{"leaf0-spine1", "leaf1-spine1"} {
		if err := r.SetTrunk(name, false); err != nil {
			t.Fatal(err)
		}
	}
	r.At(clock.Time(200*time.Microsecond), func() { _ = r.SetTrunk("leaf0-spine0", false); _ = r.SetTrunk("leaf0-spine1", true) })
	r.At(clock.Time(500*time.Microsecond), func() { _ = r.SetTrunk("leaf0-spine0", true) })
	if err := verifyAll(t, r); err != nil {
		t.Fatal(err)
	}
	if n := sent(r); n["leaf1-spine1"] > 0 || n["leaf1-spine0"] == 0 || n["leaf0-spine0"] == 0 {
		t.Errorf("trunks have carried %v", n)
	}
	if err := r.SetTrunk("leaf0-spine2", false); err == nil {
		t.Error("a trunk that is not there was cut")
	}
}

// A partition separates hosts of the same leaf, and of different leaves.
func TestFabricPartition(t *testing.T) {
	reaches := func(r *Rack, from string) bool {
		var err error
		h := r.Host(from)
		h.Go("dial", false, func(ctx verbs.Context) {
			cfg := perf.Config{Test: "verify", Iters: 2, Atomics: 1, Verify: true, Hooks: perf.Hooks{Counters: h.Counters}, To: "ms0"}
			_, err = perf.Run(ctx, h.Manager(ctx), r.Host("ms0").Addr(), cfg, nil)
		})
		if e := r.Run(); e != nil {
			t.Fatal(e)
		}
		return err == nil
	}
	r := newRack(t, leaves, Options{Datagrams: true})
	serve(t, r.Host("ms0"))
	r.Partition([]string{"cn1", "cn2"}) // cn1 is on the leaf of ms0
	got := fmt.Sprint(reaches(r, "cn0"), reaches(r, "cn1"), reaches(r, "cn2"), reaches(r, "cn3"))
	r.Partition(nil)
	if got += fmt.Sprint(" ", reaches(r, "cn1"), reaches(r, "cn2")); got != "true false false true true true" {
		t.Errorf("hosts reach ms0: %s", got)
	}
}

// Hosts that run apart do the same with any number of workers.
func TestRunApart(t *testing.T) {
	run := func(workers int) (now clock.Time, counters []string) {
		r := newRack(t, leaves+"faults: [{link: cn0, kind: loss, probability: 2%}, {link: leaf1-spine0, kind: reorder, delay: 20us}]\n", Options{Datagrams: true})
		r.eager = true
		serve(t, r.Host("ms0"))
		var list []verbs.Runtime
		for _, h := range r.Hosts()[:4] {
			ctx := h.Context("clients")
			ctx.Runtime().Go("client", func() {
				cfg := perf.Config{Test: "verify", Iters: 50, Atomics: 50, Verify: true, Hooks: perf.Hooks{Counters: h.Counters}, To: "ms0"}
				if _, err := perf.Run(ctx, h.Manager(ctx), r.Host("ms0").Addr(), cfg, nil); err != nil {
					t.Errorf("%s: %v", h.Spec.Name, err)
				}
			})
			list = append(list, ctx.Runtime())
		}
		r.Host("cn0").Go("run", false, func(verbs.Context) {
			if err := r.RunApart(workers, list...); err != nil {
				t.Error(err)
			}
			if err := r.RunApart(workers, list...); err != nil { // all have ended
				t.Error(err)
			}
			now = r.Now()
		})
		if err := r.Run(); err != nil {
			t.Fatal(err)
		}
		if r.Windows() == 0 {
			t.Error("nothing ran apart")
		}
		for _, h := range r.Hosts() {
			counters = append(counters, fmt.Sprintf("%+v", h.Counters()))
		}
		return now, counters
	}
	now, counters := run(1)
	for _, workers := range []int{2, 4} {
		if n, c := run(workers); n != now || !slices.Equal(c, counters) {
			t.Errorf("%d workers: until %v, with one until %v", workers, n, now)
		}
	}
}

// What cannot run apart is refused; an error or a panic there ends the run.
func TestRunApartFails(t *testing.T) {
	apart := func(opt Options, do func(r *Rack, ctx verbs.Context) verbs.Runtime) (apart, run error) {
		r := newRack(t, leaves, opt)
		ctx := r.Host("cn1").Context("clients")
		r.Host("cn0").Go("run", false, func(verbs.Context) { apart = r.RunApart(2, do(r, ctx)) })
		run = r.Run()
		return apart, run
	}
	for _, c := range []struct {
		want string
		opt  Options
		do   func(r *Rack, ctx verbs.Context) verbs.Runtime
	}{
		{"connect by datagrams", Options{}, func(_ *Rack, ctx verbs.Context) verbs.Runtime { return ctx.Runtime() }},
		{"is no application of this rack", Options{Datagrams: true}, func(*Rack, verbs.Context) verbs.Runtime {
			return newRack(t, leaves, Options{}).Host("cn0").Context("other").Runtime()
		}},
		{"a call is scheduled", Options{Datagrams: true}, func(r *Rack, ctx verbs.Context) verbs.Runtime {
			r.At(clock.Time(time.Second), func() {})
			return ctx.Runtime()
		}},
		{"the clients give up", Options{Datagrams: true}, func(r *Rack, ctx verbs.Context) verbs.Runtime {
			ctx.Runtime().Go("c", func() { r.Stop(errors.New("the clients give up")); ctx.Runtime().Sleep(time.Second) })
			return ctx.Runtime()
		}},
		{"panicked: a bug", Options{Datagrams: true}, func(_ *Rack, ctx verbs.Context) verbs.Runtime {
			ctx.Runtime().Go("c", func() { panic("a bug") })
			return ctx.Runtime()
		}},
		{"waits for", Options{Datagrams: true}, func(_ *Rack, ctx verbs.Context) verbs.Runtime {
			ctx.Runtime().Go("c", func() {
				if cq, err := ctx.CreateCQ(1); err == nil {
					_ = cq.Wait(clock.Never)
				}
			})
			return ctx.Runtime()
		}},
	} {
		one, other := apart(c.opt, c.do)
		if err := errors.Join(one, other); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
