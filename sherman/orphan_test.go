package sherman_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// A client dies at the last step of a merge: its closed page is out of all chains. The page's
// sibling leaves the tree, too. A node whose index cache is from before all this writes to the keys
// of the closed page.
func TestAClosedPageWhoseSiblingHasLeft(t *testing.T) {
	last := orphan(t, -1) // the WRITEs that make a page Unused
	if len(last) < 4 {
		t.Errorf("%d pages were merged", len(last))
	}
	for _, n := range last {
		orphan(t, n)
	}
}

// orphan kills a client that deletes four of five keys when it is about to post its n-th request
// with a WRITE; -1: it does not. It returns the numbers of the WRITEs that made a page Unused.
func orphan(t *testing.T, n int) (last []int) {
	g := newRig(t, simrack.Options{}, region)
	g.format(sherman.FormatConfig{Shape: mergeShape, Locks: 64})
	h, node := g.Host("cn0"), g.node(sherman.NodeConfig{})
	filled, warm, over, emptied := false, false, false, false
	h.Go("victim", false, func(ctx verbs.Context) {
		rt, writes := ctx.Runtime(), -1
		dying := func(wrs []verbs.SendWR) []verbs.SendWR {
			if writes < 0 || wrs[0].Op != verbs.OpWrite {
				return wrs
			}
			if int(node.Stats().Merged) > len(last) { // the WRITE before this one was the last of a merge
				last = append(last, writes)
			}
			if writes++; writes == n {
				over = true
				h.Crash()
				rt.Sleep(time.Millisecond)
			}
			return wrs
		}
		c, err := node.Open(sherman.Config{Context: bent{ctx, dying}, Manager: h.Manager(ctx)}, soon(rt))
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
		if !over && err != nil {
			t.Error(err)
		}
		over = true
	})
	g.client("cn1", g.node(sherman.NodeConfig{Lease: 5 * time.Millisecond}), func(c *sherman.Client, rt verbs.Runtime) error {
		for ; !filled; rt.Sleep(time.Microsecond) {
		}
		for k := range uint64(mergeKeys) {
			if _, err := c.Get(k, nil, soon(rt)); err != nil {
				return err
			}
		}
		for warm = true; !emptied; rt.Sleep(time.Microsecond) {
		}
		first := uint64(0)
		if n >= 0 { // before the index cache learns about the closed page by another key
			h, err := closedLeaf(c, rt)
			if err != nil {
				return fmt.Errorf("death at WRITE %d: %w", n, err)
			}
			first = h.Lowest
		}
		for i := range uint64(mergeKeys) {
			k := (first + i) % mergeKeys
			if err := c.Upsert(k, value(k, 1), rt.Now().Add(100*time.Millisecond)); err != nil {
				return fmt.Errorf("death at WRITE %d: upsert of key %d: %w", n, k, err)
			}
		}
		rep, err := whole(c, rt, -1)
		if err == nil && rep.Closed > 0 {
			err = fmt.Errorf("death at WRITE %d: %v", n, rep)
		}
		return err
	})
	g.client("cn2", g.node(sherman.NodeConfig{Lease: 5 * time.Millisecond}), func(c *sherman.Client, rt verbs.Runtime) error {
		defer func() { emptied = true }()
		for ; !over; rt.Sleep(time.Microsecond) {
		}
		for k := range uint64(mergeKeys) {
			if err := c.Delete(k, soon(rt)); err != nil && !errors.Is(err, kv.ErrNotFound) {
				return fmt.Errorf("death at WRITE %d: delete of key %d: %w", n, k, err)
			}
		}
		return nil
	})
	g.run()
	return last
}
