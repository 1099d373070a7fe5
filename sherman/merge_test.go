package sherman_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/verbstest"
	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Nine of ten keys are deleted, wherever they are, and then keys of another range are inserted: the
// pages that the deleted keys have filled are used for them: ten times, or four times in a short run.
func TestSparseLeavesGiveRoomBack(t *testing.T) {
	rounds := verbstest.Tries(10, 4)
	g := newRig(t, simrack.Options{}, 128<<10)
	g.format(sherman.FormatConfig{Shape: layout.Shape{Value: 16}})
	n := g.node(sherman.NodeConfig{})
	g.client("cn1", n, func(c *sherman.Client, rt verbs.Runtime) error {
		r := rand.New(rand.NewPCG(1, 2))
		var kept []uint64
		least := 0
		for round := range uint64(rounds) {
			var keys []uint64
			for {
				k := round<<32 | r.Uint64N(1<<32)
				err := c.Insert(k, make([]byte, r.IntN(17)), soon(rt))
				if errors.Is(err, kv.ErrFull) {
					break
				}
				if err != nil {
					return err
				}
				keys = append(keys, k)
			}
			if round == 0 {
				least = len(keys) / 2
			}
			if len(keys) < least {
				return fmt.Errorf("round %d: full with %d new keys, of %d that were deleted", round, len(keys), 2*least)
			}
			for _, k := range kept {
				if _, err := c.Get(k, nil, soon(rt)); err != nil {
					return fmt.Errorf("round %d: key %d: %w", round, k, err)
				}
			}
			keys, kept = append(keys, kept...), kept[:0]
			r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			for i, k := range keys {
				if i%10 == 0 {
					kept = append(kept, k)
					continue
				}
				if err := c.Delete(k, soon(rt)); err != nil {
					return fmt.Errorf("round %d: delete: %w", round, err)
				}
			}
			rep, err := whole(c, rt, 0)
			if err != nil {
				return err
			}
			if rep.Content.Keys != uint64(len(kept)) || rep.Content.Keys*8 < rep.Room {
				return fmt.Errorf("round %d: %d keys left: %v", round, len(kept), rep)
			}
			t.Logf("round %d: %d keys, %d left: %v", round, len(keys), len(kept), rep)
		}
		return nil
	})
	g.run()
	if s := n.Stats(); s.Joined == 0 || s.Merged < s.Joined {
		t.Errorf("%d leaves were closed with records, %d pages merged", s.Joined, s.Merged)
	}
}

// Seven of eight keys of a full tree from which no page has left yet are deleted, so that each leaf
// keeps some: the leaves are merged, and their pages are used for other keys.
func TestAFullTreeMergesItsSparseLeaves(t *testing.T) {
	g := newRig(t, simrack.Options{}, 40<<10)
	g.format(sherman.FormatConfig{Shape: layout.Shape{Value: 16}})
	g.client("cn1", g.node(sherman.NodeConfig{}), func(c *sherman.Client, rt verbs.Runtime) error {
		fill := func(from uint64) (n uint64, err error) {
			for ; err == nil; n++ {
				err = c.Insert(from+n, value(n, 0), soon(rt))
			}
			if errors.Is(err, kv.ErrFull) {
				err = nil
			}
			return n - 1, err
		}
		filled, err := fill(0)
		for k := uint64(0); k < filled && err == nil; k++ {
			if k%8 != 0 {
				err = c.Delete(k, soon(rt))
			}
		}
		if err != nil {
			return err
		}
		more, err := fill(1 << 40)
		if err == nil && more < filled/2 {
			err = fmt.Errorf("full with %d new keys, after 7/8 of %d were deleted", more, filled)
		}
		rep, broken := whole(c, rt, 0)
		t.Logf("%d keys, then %d: %v", filled, more, rep)
		return errors.Join(err, broken)
	})
	g.run()
}

const mergeKeys = 200

// shuffled returns the i-th of mergeKeys keys that are not in order. Keys in order would fill the leaves,
// of which a part only is to have records.
func shuffled(i uint64) uint64 { return 77 * i % mergeKeys }

var mergeShape = layout.Shape{Page: 512, Value: 16}

// At whatever request of a merge the client dies, no key is lost, none comes back, and the next
// clients finish the merge.
func TestDeathInAMerge(t *testing.T) {
	deaths, after := 0, 0
	for ; deaths == after; after++ {
		if deathInAMerge(t, after) {
			deaths++
		}
	}
	if deaths < 40 {
		t.Errorf("%d deaths", deaths)
	}
}

// deathInAMerge kills a client that deletes four of five keys when it is about to post its n-th
// request with a WRITE. It reports whether there was one.
func deathInAMerge(t *testing.T, n int) (died bool) {
	g := newRig(t, simrack.Options{}, region)
	g.format(sherman.FormatConfig{Shape: mergeShape, Locks: 64})
	h := g.Host("cn0")
	deleted, over := map[uint64]error{}, false
	h.Go("victim", false, func(ctx verbs.Context) {
		rt, writes := ctx.Runtime(), -1
		dying := func(wrs []verbs.SendWR) []verbs.SendWR {
			if writes >= 0 && wrs[0].Op == verbs.OpWrite {
				if writes++; writes == 3*n+1 {
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
		writes = 0
		for k := uint64(0); k < mergeKeys && err == nil; k++ {
			if k%5 != 0 {
				deleted[k] = kv.ErrTimeout // until it is acknowledged
				err = c.Delete(k, soon(rt))
				deleted[k] = err
			}
		}
		if over = true; err != nil && !died {
			t.Error(err)
		}
	})
	g.client("cn2", g.node(sherman.NodeConfig{Lease: 5 * time.Millisecond}), func(c *sherman.Client, rt verbs.Runtime) error {
		for ; !over; rt.Sleep(time.Microsecond) {
		}
		for k := range uint64(mergeKeys) {
			err, asked := deleted[k]
			v, gone := c.Get(k, nil, soon(rt))
			switch {
			case gone != nil && !errors.Is(gone, kv.ErrNotFound):
				return fmt.Errorf("death at WRITE %d: key %d: %w", 3*n+1, k, gone)
			case gone == nil && asked && err == nil:
				return fmt.Errorf("death at WRITE %d: key %d was deleted and is there", 3*n+1, k)
			case gone != nil && !asked:
				return fmt.Errorf("death at WRITE %d: key %d is lost", 3*n+1, k)
			case gone == nil && string(v) != string(value(k, 0)):
				return fmt.Errorf("death at WRITE %d: key %d has %x", 3*n+1, k, v)
			}
		}
		for k := range uint64(mergeKeys) { // writes find what is closed
			if err := c.Upsert(k, value(k, 1), soon(rt)); err != nil {
				return err
			}
		}
		rep, err := whole(c, rt, -1)
		if err == nil && (rep.Closed > 1 || rep.Content.Keys != mergeKeys) {
			err = fmt.Errorf("death at WRITE %d: %v", 3*n+1, rep)
		}
		return err
	})
	g.run()
	return died
}
