package clover_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
)

// The steering program is loaded and unloaded while clients append to the same keys and read them.
// Some connections were made under one program, some under the other. None of the connections
// fails, no value is lost or belongs to another key, and appends on connections that were made
// under the steering program are steered.
func TestSteeringIsLoadedAndUnloaded(t *testing.T) {
	const keys, swaps, every = 4, 6, time.Millisecond
	g := newRig(t, simrack.Options{Datagrams: true}, meta.Config{Format: layout.Hardened, Keys: 16}, region)
	var list []rules.Rule
	for _, ms := range []string{"ms0", "ms1"} {
		r, err := rules.Parse("server=" + ms + " action=steer steer=both")
		if err == nil {
			err = r.Resolve(g.Spec.Addresses)
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	set, err := rules.NewSet(list)
	if err != nil {
		t.Fatal(err)
	}
	ready, over, steered := false, false, uint64(0)
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		for k := range uint64(keys) {
			if err := c.Insert(k, kv.MakeValue(k, 0, 64), soon(rt)); err != nil {
				return err
			}
		}
		ready = true
		defer func() { over = true }()
		for i := range swaps {
			rt.Sleep(every)
			name, set := rackfile.ProgramSwordBox, set
			if i%2 == 1 {
				p, ok := g.Program().(*swordbox.Program)
				if !ok || p.Bound() != 0 {
					return fmt.Errorf("swap %d: program %T cannot go", i, g.Program())
				}
				for _, group := range p.Counters(g.Now()) {
					for _, counter := range group.Counters {
						if counter.Name == "appends_steered" {
							steered += counter.Value
						}
					}
				}
				name, set = rackfile.ProgramForward, nil
			}
			if err := g.LoadProgram(name, set); err != nil {
				return err
			}
		}
		return nil
	})
	work := func(id int, rt verbs.Runtime, c *clover.Client, until func() bool) error {
		for n := 1; !until(); n++ {
			k := uint64(n % keys)
			if err := c.Put(k, kv.MakeValue(k, uint64(id)<<32|uint64(n), 64), soon(rt)); err != nil {
				return fmt.Errorf("PUT %d: %w", n, err)
			}
			v, err := c.Get(k, nil, soon(rt))
			if err == nil {
				_, err = kv.CheckValue(k, v)
			}
			if err != nil {
				return fmt.Errorf("GET %d: %w", n, err)
			}
		}
		return nil
	}
	for id := range 3 {
		host := fmt.Sprintf("cn%d", id%3)
		g.client(host, func(c *clover.Client, rt verbs.Runtime) error { // this client stays for the whole test
			for !ready {
				rt.Sleep(100 * time.Microsecond)
			}
			return work(id, rt, c, func() bool { return over })
		})
		h := g.Host(host)
		h.Go("later", false, func(ctx verbs.Context) { // and clients, each of which begins when the one before has ended
			rt := ctx.Runtime()
			for !ready {
				rt.Sleep(100 * time.Microsecond)
			}
			for n := 0; !over; n++ {
				c, err := clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: g.Host("md0").Addr()}, soon(rt))
				if err == nil {
					end := rt.Now().Add(every)
					err = work(100+id+n<<8, rt, c, func() bool { return over || rt.Now() >= end })
				}
				if err == nil {
					err = c.Close()
				}
				if err != nil {
					t.Errorf("later client %d of %s: %v", n, host, err)
					return
				}
			}
		})
	}
	g.run()
	for _, h := range g.Hosts() {
		if n := h.Counters().RetryExceededErr; n != 0 {
			t.Errorf("%d connections failed", n)
		}
	}
	if steered == 0 {
		t.Error("no append was steered")
	}
	t.Logf("%d appends were steered", steered)
}
