package simrack

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/swordbox/hotwords"
)

const counting = `
name: counting
switch:
  program: swordbox
  rules:
    - {id: hot, server: ms0, action: count, top: 8}
    - {id: locks, server: ms0, action: atomics}
hosts:
  - {name: "cn[0-1]", role: compute}
  - {name: ms0, role: memory}
`

// Each of two clients uses its own word, and one of them sends four times as many atomics as the
// other. The switch counts both exactly, and replaces their atomics as it would without the
// counting rule.
func TestHotWords(t *testing.T) {
	r := newRack(t, counting, Options{Datagrams: true})
	ms := r.Host("ms0")
	ms.Go("memory", true, func(ctx verbs.Context) {
		s, err := memservice.New(ctx, ms.Manager(ctx), memservice.Config{Region: 1 << 16})
		if err == nil {
			err = s.Serve()
		}
		if err != nil {
			t.Error(err)
		}
	})
	const often, seldom = 80, 20
	for name, iters := range map[string]int{"cn0": often, "cn1": seldom} {
		cn := r.Host(name)
		cn.Go("client", false, func(ctx verbs.Context) {
			ctx.Runtime().Sleep(100 * time.Millisecond)
			cfg := perf.Config{Test: "atomic_lat", Service: memservice.Service, Iters: iters, Hooks: perf.Hooks{Counters: cn.Counters}, To: "ms0"}
			if _, err := perf.Run(ctx, cn.Manager(ctx), ms.Addr(), cfg, nil); err != nil {
				t.Error(err)
			}
		})
	}
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	p := programOf(t, r)
	var all, replaced, requests uint64
	var words []hotwords.Hot
	for _, h := range p.Report(r.Now()).Handlers {
		list, _ := h.Lists["hot"].([]hotwords.Hot)
		words = append(words, list...)
		for _, one := range list {
			all += one.Atomics
			if one.Over != 0 || one.Rule != "hot" || one.Server != ms.Spec.IPv4 || one.Count != one.Atomics+one.Reads+one.Writes {
				t.Errorf("%+v", one)
			}
		}
	}
	for _, g := range p.Counters(r.Now()) {
		for _, c := range g.Counters {
			switch g.Name + " " + c.Name {
			case "hardened replaced":
				replaced = c.Value
			case "hot requests":
				requests = c.Value
			}
		}
	}
	if len(words) != 2 || words[0].Count != often || words[1].Count != seldom || all != often+seldom || requests != all || replaced < often {
		t.Errorf("%d atomics were counted, %d requests, %d were replaced: %+v", all, requests, replaced, words)
	}
}
