package simrack

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// rulesRack is a rack in which clients WRITE and add for some time, and no machine crashes.
func rulesRack(t *testing.T, seed uint64, trouble float64) *restartRun {
	x := &restartRun{t: t, added: make(map[uint64]bool), errors: make(map[verbs.Status]int)}
	x.r = newRack(t, `
name: rules
switch: {program: swordbox}
hosts:
  - {name: "cn[0-2]", role: compute}
  - {name: ms0, role: memory}
`, Options{Seed: seed, Datagrams: true})
	for _, h := range x.r.Hosts() {
		if name := h.Spec.Name; trouble > 0 {
			h.SetFaults([]fault.Rule{
				{Link: name, Kind: fault.Loss, Probability: trouble},
				{Link: name, Kind: fault.Duplicate, Probability: trouble},
			})
		}
	}
	x.r.Host("ms0").Go("server", true, x.serve)
	for i := range restartClients {
		h := x.r.Host(fmt.Sprintf("cn%d", i))
		h.Go("client", false, func(ctx verbs.Context) {
			ctx.Runtime().Sleep(5 * time.Millisecond)
			if err := x.client(ctx, h, i); err != nil {
				x.failed = append(x.failed, err.Error())
			}
		})
	}
	return x
}

// Rules are added and removed while clients work. No client gets an error.
func TestRulesChangeUnderLoad(t *testing.T) {
	texts := []string{
		"",
		"server=ms0 action=track",
		"server=ms0 action=move",
		"server=ms0 action=atomics shards=3",
		"server=ms0 action=move range=0-0x7fffffffffff shards=2",
		"server=ms0 action=atomics",
	}
	for seed := uint64(1); seed <= 20; seed++ {
		x := rulesRack(t, seed, 0.005)
		p := programOf(t, x.r)
		rnd := rand.New(rand.NewPCG(seed, 7))
		at := clock.Time(5 * time.Millisecond)
		for range 12 {
			text := texts[rnd.IntN(len(texts))]
			x.r.At(at, func() {
				var list []rules.Rule
				if text != "" {
					r, err := rules.Parse(text)
					if err == nil {
						err = r.Resolve(x.r.Spec.Addresses)
					}
					if err != nil {
						t.Fatal(err)
					}
					list = append(list, r)
				}
				set, err := rules.NewSet(list)
				if err == nil {
					err = p.SetRules(set)
				}
				if err != nil {
					t.Errorf("%s: %v", text, err)
				}
			})
			at = at.Add(time.Duration(rnd.IntN(int(3 * time.Millisecond))))
		}
		if err := x.r.Run(); err != nil {
			x.stuck = err
		}
		x.check()
		if len(x.errors) != 0 {
			t.Errorf("seed %d: clients saw %v", seed, x.errors)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// Connections are made when rules need them, and ended some time after the last such rule was
// removed. A connection that is needed again in the meantime is kept.
func TestConnectionsFollowTheRules(t *testing.T) {
	x := rulesRack(t, 1, 0)
	p := programOf(t, x.r)
	if err := x.r.Run(); err != nil {
		t.Fatal(err)
	}
	use := func(text string) {
		t.Helper()
		r, err := rules.Parse(text)
		if err == nil {
			err = r.Resolve(x.r.Spec.Addresses)
		}
		var set *rules.Set
		if err == nil {
			set, err = rules.NewSet([]rules.Rule{r})
		}
		if err == nil {
			err = p.SetRules(set)
		}
		if err != nil {
			t.Fatal(err)
		}
		x.r.StepSwitch(p.Tick)
	}
	settle := func(d time.Duration) {
		t.Helper()
		if err := x.r.Settle(d); err != nil {
			t.Fatal(err)
		}
	}
	up := func() (n int) {
		for _, i := range p.Own().Dialer().List() {
			if i.State == switchconn.Up {
				n++
			}
		}
		return n
	}
	for _, step := range []struct {
		rule string
		wait time.Duration
		want int
	}{
		{"server=ms0 action=move shards=3", 50 * time.Millisecond, 3},
		{"server=ms0 action=move shards=1", 50 * time.Millisecond, 3}, // connections are kept for some time
		{"server=ms0 action=move shards=3", 10 * time.Second, 3},      // and are reused
		{"server=ms0 action=move shards=1", 10 * time.Second, 1},
		{"server=ms0 action=track", 10 * time.Second, 0},
		{"server=ms0 action=atomics mode=published", 10 * time.Second, 0},
		{"server=ms0 action=atomics", time.Second, 1},
	} {
		use(step.rule)
		settle(step.wait)
		if got := up(); got != step.want {
			t.Errorf("%s: %d connections, want %d: %+v", step.rule, got, step.want, p.Own().Dialer().List())
		}
	}
	g, err := x.r.Host("ms0").Engine().GSI()
	if err != nil {
		t.Fatal(err)
	}
	if live, _ := g.Conns(); live != 1 {
		t.Errorf("the server has %d connections", live)
	}
	// A switch that is stopped ends its connections with DREQs.
	x.r.StepSwitch(p.Close)
	settle(2 * time.Second)
	if live, ended := g.Conns(); live+ended != 0 || up() != 0 {
		t.Errorf("the server has %d connections, and %d that have ended", live, ended)
	}
}
