package sherman_test

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// A client has split a page and is about to put the separator into the parent. Before it gets the
// parent's lock, another client deletes all keys of the new page and of its neighbours, and takes
// these pages out of the tree. The separator must not be added, because it would name a page that
// may be reused as another page.
func TestNoSeparatorNamesAPageThatLeft(t *testing.T) {
	g := newRig(t, simrack.Options{}, region)
	g.format(sherman.FormatConfig{Shape: layout.Shape{Page: 256}})
	const first, last = 100, 200 // the keys that are inserted
	armed, wrote, stage := false, false, 0
	h := g.Host("cn0")
	h.Go("splits", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		pause := func(wrs []verbs.SendWR) []verbs.SendWR {
			switch {
			case !armed:
			case len(wrs) == 1 && wrs[0].Op == verbs.OpWrite && wrs[0].SGL[0].Length == 256:
				wrote = true // the WRITE of the new page
			case wrote && wrs[0].Op == verbs.OpCmpSwap:
				for stage = 1; stage < 2; rt.Sleep(time.Microsecond) {
				}
				armed = false
			}
			return wrs
		}
		c, err := g.node(sherman.NodeConfig{}).Open(sherman.Config{Context: bent{ctx, pause}, Manager: h.Manager(ctx)}, soon(rt))
		for k := uint64(0); k < 400 && err == nil; k += 10 {
			err = c.Insert(k, value(k, 0), soon(rt))
		}
		armed = true
		for k := uint64(first + 1); k < last && stage == 0 && err == nil; k++ {
			if k%10 != 0 {
				err = c.Insert(k, value(k, 0), soon(rt))
			}
		}
		if err = errors.Join(err, c.Close()); err != nil || stage != 2 {
			t.Errorf("stage %d: %v", stage, err)
		}
		stage = 3
	})
	n := g.node(sherman.NodeConfig{Lease: time.Minute})
	g.client("cn1", n, func(c *sherman.Client, rt verbs.Runtime) error {
		for ; stage < 1; rt.Sleep(time.Microsecond) {
		}
		merged := n.Stats().Merged
		for k := uint64(first - 20); k < last; k++ {
			if err := c.Delete(k, soon(rt)); err != nil && !errors.Is(err, kv.ErrNotFound) {
				return err
			}
		}
		if left := n.Stats().Merged - merged; left < 2 {
			t.Errorf("%d pages have left the tree", left)
		}
		for stage = 2; stage < 3; rt.Sleep(time.Microsecond) {
		}
		_, err := whole(c, rt, -1)
		return err
	})
	g.run()
}
