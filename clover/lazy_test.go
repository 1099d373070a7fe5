package clover_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A client with LazyShortcut reads only the node of a key that no other client has written, and
// still finds the newest node of a key that another client has written.
func TestLazyShortcutIsReadBehindASuccessor(t *testing.T) {
	const key, size, puts = 1, 40, 9
	for lazy, want := range map[bool]uint64{false: 2, true: 1} {
		g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 16}, region)
		stage := 0
		await := func(rt verbs.Runtime, n int) {
			for ; stage < n; rt.Sleep(100 * time.Microsecond) {
			}
		}
		g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
			err := c.Insert(key, value(key, 0, size), soon(rt))
			stage = 1
			await(rt, 2)
			for n := 1; err == nil && n <= puts; n++ {
				err = c.Put(key, value(key, n, size), soon(rt))
			}
			stage = 3
			return err
		})
		h := g.Host("cn1")
		h.Go("reader", false, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			c, err := clover.Open(clover.Config{
				Context: ctx, Manager: h.Manager(ctx), Meta: g.Host("md0").Addr(), LazyShortcut: lazy,
			}, soon(rt))
			if err != nil {
				t.Error(err)
				return
			}
			await(rt, 1)
			get := func(n int) uint64 {
				reads := func() uint64 {
					a, b := g.Host("ms0").Counters(), g.Host("ms1").Counters()
					return a.RxReadRequests + b.RxReadRequests
				}
				before := reads()
				if v, err := c.Get(key, nil, soon(rt)); err != nil || !bytes.Equal(v, value(key, n, size)) {
					t.Errorf("lazy %v: after PUT %d the key is %.20q: %v", lazy, n, v, err)
				}
				return reads() - before
			}
			get(0)
			if n := get(0); n != want {
				t.Errorf("lazy %v: a GET of a node that the client knows takes %d READs, want %d", lazy, n, want)
			}
			stage = 2
			await(rt, 3)
			rt.Sleep(time.Millisecond)
			if n := get(puts); n >= puts {
				t.Errorf("lazy %v: a GET behind %d PUTs takes %d READs", lazy, puts, n)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		g.run()
	}
}
