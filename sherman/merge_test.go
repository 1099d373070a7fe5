package sherman_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/audit"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/topo/simrack"
)

// Nine of ten keys are deleted, wherever they are, and then keys of another range are inserted: the
// pages that the deleted keys have filled are used for them, ten times.
func TestSparseLeavesGiveRoomBack(t *testing.T) {
	const rounds = 10
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
	g := newRig(t, simrack.Options{}, 64<<10)
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
				if writes++; writes == 4*n+1 {
					died, over = true, true
					h.Crash()
					rt.Sleep(time.Millisecond)
				}
			}
			return wrs
		}
		c, err := g.node(sherman.NodeConfig{}).Open(sherman.Config{Context: bent{ctx, dying}, Manager: h.Manager(ctx)}, soon(rt))
		for k := uint64(0); k < mergeKeys && err == nil; k++ {
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
				return fmt.Errorf("death at WRITE %d: key %d: %w", 4*n+1, k, gone)
			case gone == nil && asked && err == nil:
				return fmt.Errorf("death at WRITE %d: key %d was deleted and is there", 4*n+1, k)
			case gone != nil && !asked:
				return fmt.Errorf("death at WRITE %d: key %d is lost", 4*n+1, k)
			case gone == nil && string(v) != string(value(k, 0)):
				return fmt.Errorf("death at WRITE %d: key %d has %x", 4*n+1, k, v)
			}
		}
		for k := range uint64(mergeKeys) { // writes find what is closed
			if err := c.Upsert(k, value(k, 1), soon(rt)); err != nil {
				return err
			}
		}
		rep, err := whole(c, rt, -1)
		if err == nil && (rep.Closed > 1 || rep.Content.Keys != mergeKeys) {
			err = fmt.Errorf("death at WRITE %d: %v", 4*n+1, rep)
		}
		return err
	})
	g.run()
	return died
}

// A client closes a sparse leaf and stops. Before another one goes on with the merge, others fill the
// leaf's sibling: it is split, and then takes over the records.
func TestTheSiblingOfASparseLeafIsFull(t *testing.T) { theSiblingIsFull(t, region, mergeKeys) }

// If the tree was full before the leaf was closed, the split takes the page that is kept for it.
func TestTheSiblingOfASparseLeafAndTheTreeAreFull(t *testing.T) {
	theSiblingIsFull(t, 48<<10, layout.MaxKey)
}

// theSiblingIsFull inserts the given number of keys, or as many as the tree has room for, before the
// client closes the leaf.
func theSiblingIsFull(t *testing.T, region int, keys uint64) {
	g := newRig(t, simrack.Options{}, region)
	g.format(sherman.FormatConfig{Shape: mergeShape})
	h := g.Host("cn0")
	closed, over := false, false
	h.Go("victim", false, func(ctx verbs.Context) {
		rt, armed, writes := ctx.Runtime(), false, 0
		stop := func(wrs []verbs.SendWR) []verbs.SendWR {
			if armed && len(wrs) == 2 && wrs[0].SGL[0].Length == layout.Line {
				writes++
			}
			if writes == 1 && wrs[0].Op == verbs.OpRead { // the leaf is closed
				closed = true
				h.Crash()
				rt.Sleep(time.Millisecond)
			}
			return wrs
		}
		c, err := g.node(sherman.NodeConfig{}).Open(sherman.Config{Context: bent{ctx, stop}, Manager: h.Manager(ctx)}, soon(rt))
		for k := uint64(0); k < keys && err == nil; k++ {
			err = c.Insert(100*k, value(k, 0), soon(rt))
		}
		if armed = true; errors.Is(err, kv.ErrFull) {
			err = nil
		}
		for k := uint64(40); k < mergeKeys && err == nil && !closed; k++ {
			if k%5 != 0 {
				err = c.Delete(100*k, soon(rt))
			}
		}
		if !closed {
			t.Errorf("no leaf was closed: %v", err)
		}
		over = true
	})
	n := g.node(sherman.NodeConfig{Lease: 5 * time.Millisecond})
	g.client("cn2", n, func(c *sherman.Client, rt verbs.Runtime) error {
		for ; !closed && !over; rt.Sleep(time.Microsecond) {
		}
		rep, err := whole(c, rt, -1)
		if err != nil || rep.Closed != 1 {
			return fmt.Errorf("after the death: %v %w", rep, err)
		}
		closed, err := closedLeaf(c, rt)
		if err != nil {
			return err
		}
		lowest := closed.Highest
		room := func() (n int, err error) { // of the sibling
			var p layout.Page
			b := make([]byte, mergeShape.Page)
			if err = c.ReadPage(closed.Sibling, b, soon(rt)); err == nil {
				err = p.Parse(c.Super().Shape, b)
			}
			return p.Slots() - p.Count(), err
		}
		want := map[uint64]bool{}
		if err := c.Scan(0, 1<<20, func(k uint64, _ []byte) bool { want[k] = true; return true }, soon(rt)); err != nil {
			return err
		}
		for k := lowest; ; k++ { // these keys are the sibling's
			left, err := room()
			if err != nil {
				return err
			}
			if left == 0 {
				break
			}
			if err := c.Upsert(k, value(k, 1), soon(rt)); err != nil {
				return err
			}
			want[k] = true
		}
		splits := n.Stats().Splits
		if rep, err = whole(c, rt, -1); err != nil || rep.Closed != 1 || splits > 0 {
			return fmt.Errorf("the sibling is full: %d splits, %v %w", splits, rep, err)
		}
		for k := range want {
			if _, err := c.Get(k, nil, soon(rt)); err != nil {
				return fmt.Errorf("key %d: %w", k, err)
			}
		}
		if err := c.Upsert(lowest-1, value(lowest-1, 1), soon(rt)); err != nil {
			return err
		}
		want[lowest-1] = true
		rep, err = whole(c, rt, -1)
		if err == nil && (rep.Closed != 0 || rep.Content.Keys != uint64(len(want)) || n.Stats().Splits != 1) {
			err = fmt.Errorf("%d keys, %d splits: %v", len(want), n.Stats().Splits, rep)
		}
		return err
	})
	g.run()
}

// closedLeaf returns the header of the closed leaf.
func closedLeaf(c *sherman.Client, rt verbs.Runtime) (h layout.Header, err error) {
	cfg, err := audit.Config(c, soon(rt))
	if err != nil {
		return h, err
	}
	s, b := c.Super(), make([]byte, c.Super().Shape.Page)
	var p layout.Page
	for server := range s.Servers {
		for at := s.FirstChunk(); at < cfg.Ends[server]; at += uint64(s.Shape.Page) {
			if err := cfg.Read(layout.At(server, at), b); err != nil {
				return h, err
			}
			if p.Parse(s.Shape, b) == nil && p.Stage == layout.Closed {
				return p.Header, nil
			}
		}
	}
	return h, errors.New("no page is closed")
}
