package clover_test

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// With PublishedShortcuts a writer that is behind follows the chain node by node until the client that has
// appended the nodes reports them; the report comes with the shortcut of the oldest of them. Without, the writer
// finds a shortcut near the end.
func TestPublishedShortcutsComeWithReports(t *testing.T) {
	const key, size, puts = 1, 40, 40
	for _, published := range []bool{false, true} {
		g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 16, Lease: time.Hour}, region)
		stage := 0
		await := func(rt verbs.Runtime, n int) {
			for ; stage < n; rt.Sleep(100 * time.Microsecond) {
			}
		}
		open := func(host string, f func(c *clover.Client, rt verbs.Runtime) error) {
			h := g.Host(host)
			h.Go("client", false, func(ctx verbs.Context) {
				rt := ctx.Runtime()
				c, err := clover.Open(clover.Config{
					Context: ctx, Manager: h.Manager(ctx), Meta: g.Host("md0").Addr(), PublishedShortcuts: published, Records: puts + 5,
				}, soon(rt))
				if err == nil {
					err = f(c, rt)
				}
				if err == nil {
					err = c.Close()
				}
				if err != nil {
					t.Errorf("published %v, %s: %v", published, host, err)
				}
			})
		}
		open("cn0", func(c *clover.Client, rt verbs.Runtime) error {
			err := c.Insert(key, value(key, 0, size), soon(rt))
			stage = 1
			await(rt, 2)
			for n := 1; err == nil && n <= puts; n++ {
				err = c.Put(key, value(key, n, size), soon(rt))
			}
			stage = 3
			await(rt, 4)
			return err
		})
		open("cn1", func(c *clover.Client, rt verbs.Runtime) error {
			await(rt, 1)
			if _, err := c.Get(key, nil, soon(rt)); err != nil {
				return err
			}
			stage = 2
			await(rt, 3)
			reads := func() uint64 {
				a, b := g.Host("ms0").Counters(), g.Host("ms1").Counters()
				return a.RxReadRequests + b.RxReadRequests
			}
			before := reads()
			err := c.Put(key, value(key, puts+1, size), soon(rt))
			if n := reads() - before; published && n < puts || !published && n > puts/2 {
				t.Errorf("published %v: a PUT behind %d others takes %d READs", published, puts, n)
			}
			stage = 4
			return err
		})
		g.run()
	}
}

// With PublishedShortcuts, a report comes with the shortcuts of all its keys, and so does a part for a Reporter.
func TestPublishedShortcutsOfAllKeys(t *testing.T) {
	const keys, size = 40, 40
	for _, together := range []bool{false, true} {
		g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 64, Lease: time.Hour}, region)
		h := g.Host("cn0")
		h.Go("client", false, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			cfg := clover.Config{
				Context: ctx, Manager: h.Manager(ctx), Meta: g.Host("md0").Addr(), PublishedShortcuts: true, Records: keys, Spread: true,
			}
			if together {
				cfg.Reporter = clover.NewReporter(cfg)
				defer cfg.Reporter.Close()
			}
			writes := func() uint64 {
				return g.Host("ms0").Counters().RxWriteRequests + g.Host("ms1").Counters().RxWriteRequests
			}
			c, err := clover.Open(cfg, soon(rt))
			for key := uint64(1); err == nil && key <= keys; key++ {
				err = c.Insert(key, value(key, 0, size), soon(rt))
			}
			before := writes()
			for n := 1; err == nil && n <= 2; n++ {
				for key := uint64(1); err == nil && key <= keys; key++ {
					err = c.Put(key, value(key, n, size), soon(rt))
				}
			}
			rt.Sleep(10 * time.Millisecond)
			if n := writes() - before; err != nil || n != 6*keys {
				t.Errorf("together %v: %d WRITEs for 2 times %d PUTs, each with two WRITEs of its node and one of its shortcut, %v", together, n, keys, err)
			}
			if err == nil {
				err = c.Close()
			}
			if err != nil {
				t.Error(err)
			}
		})
		g.run()
	}
}
