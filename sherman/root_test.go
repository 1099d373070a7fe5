package sherman_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/audit"
	"github.com/rdmalab/rdmalab/sherman/check"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A client makes a root, does not get the answer, and repeats the request. Meanwhile the tree has
// grown above that root: the page belongs to the tree, and must not be used for anything else.
func TestRootWithoutAnswer(t *testing.T) {
	g := newRig(t, simrack.Options{}, region)
	g.format(sherman.FormatConfig{Shape: layout.Shape{Page: 256}, Chunk: 4096})
	h, cut, healed := g.Host("cn0"), false, false
	post := func(wrs []verbs.SendWR) []verbs.SendWR {
		for i := range wrs {
			// the compare-and-swap of the root word: those of lock words compare with 0
			if wrs[i].Op == verbs.OpCmpSwap && wrs[i].CompareAdd != 0 && !cut {
				cut = true
				now := g.Now()
				h.SetFaults([]fault.Rule{{Link: "cn0", Kind: fault.Blackhole, Dir: fault.Down}})
				g.At(now.Add(200*time.Millisecond), func() { healed = true; h.SetFaults(nil) })
			}
		}
		return wrs
	}
	h.Go("client", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		cfg := sherman.Config{Context: bent{ctx, post}, Manager: h.Manager(ctx), Params: rdmacm.Params{Timeout: 6, RetryCount: 1}}
		c, err := g.node(sherman.NodeConfig{}).Open(cfg, soon(rt))
		for k := uint64(0); k < 400 && err == nil; k++ { // the tenth makes a root
			if err = c.Upsert(2*k, value(2*k, 0), soon(rt)); k > 50 && !healed {
				err = errors.Join(err, fmt.Errorf("the client was not cut off"))
			}
		}
		if err = errors.Join(err, c.Close()); err != nil {
			t.Error(err)
		}
	})
	g.client("cn1", g.node(sherman.NodeConfig{}), func(c *sherman.Client, rt verbs.Runtime) error {
		for !cut {
			rt.Sleep(time.Microsecond)
		}
		rt.Sleep(100 * time.Microsecond)
		for k := range uint64(400) {
			if err := c.Upsert(2*k+1, value(2*k+1, 0), soon(rt)); err != nil {
				return err
			}
		}
		if healed {
			return errors.New("the tree grew too late")
		}
		for !healed {
			rt.Sleep(time.Millisecond)
		}
		rt.Sleep(100 * time.Millisecond)
		cfg, err := audit.Config(c, soon(rt))
		if err != nil {
			return err
		}
		cfg.Want = new(check.Content)
		for k := range uint64(800) {
			cfg.Want.Add(k)
		}
		cfg.HalfSplits, cfg.Unreachable, cfg.DeadLocks = -1, -1, -1
		r, err := check.Check(cfg)
		if err == nil {
			err = r.Err()
		}
		return err
	})
	g.run()
}

// Clients that race to make a root leave no page that a check would take for lost.
func TestRaceForTheRootLeavesNoPage(t *testing.T) {
	for _, step := range []string{"fg+", "hierarchical", "sherman"} {
		st, err := sherman.FindStep(step)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(8) {
			g := newRig(t, simrack.Options{Seed: seed + 1}, region)
			g.format(sherman.FormatConfig{Shape: layout.Shape{Kind: st.Kind, Page: 256}, PageLocks: st.PageLocks, Chunk: 4096})
			const clients = 6
			done := 0
			for i := range uint64(clients) {
				cn := fmt.Sprintf("cn%d", i%4)
				g.client(cn, g.node(st.Node(sherman.NodeConfig{})), func(c *sherman.Client, rt verbs.Runtime) error {
					for k := range uint64(4) { // together as many keys as two leaves have
						if err := c.Upsert(clients*k+i, value(k, 0), soon(rt)); err != nil {
							return err
						}
					}
					if done++; done < clients {
						return nil
					}
					cfg, err := audit.Config(c, soon(rt))
					if err != nil {
						return err
					}
					r, err := check.Check(cfg)
					if err == nil {
						err = r.Err()
					}
					return err
				})
			}
			g.run()
		}
	}
}
