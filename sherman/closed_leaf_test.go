package sherman_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A client dies during a merge, and others then write to the keys of the leaf that it has closed.
// A node whose index cache still names the closed leaf reads what they wrote.
func TestAClosedLeafIsNotReadAfterItsRangeIsTakenOver(t *testing.T) {
	for n := 1; n <= 40; n++ { // the merges of the first leaves
		if !readerBehindAMerge(t, n) {
			t.Errorf("no death at WRITE %d", n)
		}
	}
}

// readerBehindAMerge kills a client that deletes four of five keys when it is about to post its n-th
// request with a WRITE. It reports whether there was one.
func readerBehindAMerge(t *testing.T, n int) (died bool) {
	g := newRig(t, simrack.Options{}, region)
	g.format(sherman.FormatConfig{Shape: mergeShape, Locks: 64})
	h := g.Host("cn0")
	filled, warm, over, written := false, false, false, false
	h.Go("victim", false, func(ctx verbs.Context) {
		rt, writes := ctx.Runtime(), -1
		dying := func(wrs []verbs.SendWR) []verbs.SendWR {
			if writes >= 0 && wrs[0].Op == verbs.OpWrite {
				if writes++; writes == n {
					died, over = true, true
					h.Crash()
					rt.Sleep(time.Millisecond)
				}
			}
			return wrs
		}
		c, err := g.node(sherman.NodeConfig{}).Open(sherman.Config{Context: bent{ctx, dying}, Manager: h.Manager(ctx)}, soon(rt))
		for i := uint64(0); i < mergeKeys && err == nil; i++ {
			k := shuffled(i)
			err = c.Insert(k, value(k, 0), soon(rt))
		}
		for filled = true; !warm; rt.Sleep(time.Microsecond) {
		}
		writes = 0
		for k := uint64(0); k < mergeKeys && err == nil; k++ {
			if k%5 != 0 {
				err = c.Delete(k, soon(rt))
			}
		}
		if over = true; err != nil && !died {
			t.Error(err)
		}
	})
	g.client("cn1", g.node(sherman.NodeConfig{}), func(c *sherman.Client, rt verbs.Runtime) error {
		for ; !filled; rt.Sleep(time.Microsecond) {
		}
		for k := range uint64(mergeKeys) {
			if _, err := c.Get(k, nil, soon(rt)); err != nil {
				return err
			}
		}
		for warm = true; !written; rt.Sleep(time.Microsecond) {
		}
		for k := uint64(0); k < mergeKeys; k += 5 {
			v, err := c.Get(k, nil, soon(rt))
			if err != nil || string(v) != string(value(k, 1)) {
				return fmt.Errorf("death at WRITE %d: key %d has %x after a Put of %x: %w", n, k, v, value(k, 1), err)
			}
		}
		return nil
	})
	g.client("cn2", g.node(sherman.NodeConfig{Lease: 5 * time.Millisecond}), func(c *sherman.Client, rt verbs.Runtime) error {
		defer func() { written = true }()
		for ; !over; rt.Sleep(time.Microsecond) {
		}
		for k := uint64(0); k < mergeKeys; k += 5 {
			if err := c.Put(k, value(k, 1), soon(rt)); err != nil {
				return fmt.Errorf("death at WRITE %d: Put of key %d: %w", n, k, err)
			}
		}
		return nil
	})
	g.run()
	return died
}
