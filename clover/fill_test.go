package clover_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/e2e/verbstest"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Many clients fill the memory with values of one size until the store is full, delete them all,
// and fill it again with another size: ten times, or a few times in a short run. Because the classes
// share the memory, the store is not full before the values take 95 % of all nodes' bytes. The error
// says what is full, and keys can still be deleted.
func TestFillAndEmptyWithManySizes(t *testing.T) {
	fillAndEmpty(t, 40, 1, layout.Classes-1, 3, []int{4000, 1000, 32000, 100, 200, 8000, 2000, 500, 16000, 4000})
}

// In a small store, segments are shorter, and the largest nodes do not exist.
func TestFillAndEmptyASmallStore(t *testing.T) {
	fillAndEmpty(t, 60, 1, 6, 2, []int{8000, 1000, 4000, 100, 200, 4000})
}

// With two copies of each node, a server has room for half as many nodes, and as much of it is used.
func TestFillAndEmptyWithCopies(t *testing.T) {
	fillAndEmpty(t, 40, 2, 6, 2, []int{8000, 1000, 4000, 100})
}

// fillAndEmpty fills and empties a store with n segments a server in each of its copies, whose largest
// nodes have class largest, once with each of sizes: the first few of them in a short run.
func fillAndEmpty(t *testing.T, n, copies int, largest layout.Class, few int, sizes []int) {
	const clients, slots = 200, 32768
	sizes = sizes[:verbstest.Tries(len(sizes), few)]
	g := newRig(t, simrack.Options{}, meta.Config{
		Format: layout.Hardened, Keys: slots, Lease: 200 * time.Millisecond, Grace: 200 * time.Millisecond, Replicas: copies,
	}, copies*n*(largest.Size()+1)+slots/2*(layout.ShortcutLen+2*layout.RecordLen)+4096)
	segments := 0
	round, left := 0, 0
	gates := make([]verbs.Gate, 0, clients)
	keys := make([]uint64, 0, slots)
	next := 0
	for i := range clients {
		h := g.Host(fmt.Sprintf("cn%d", i%3))
		h.Go("client", false, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			c, err := clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: g.Host("md0").Addr(), MaxValue: layout.MaxSlab}, soon(rt))
			if err != nil {
				t.Error(err)
				return
			}
			gate := rt.NewGate()
			gates = append(gates, gate)
			wait := func(n int) { // waits until all clients have come to the n-th barrier
				if left++; left == n*clients {
					for _, g := range gates {
						g.Open()
					}
				}
				for left < n*clients {
					_ = gate.Wait(clock.Never)
				}
			}
			for r, size := range sizes {
				wait(4*r + 1)
				if round == r {
					round++
					if segments = int(g.server.Snapshot().Segments); segments != 2*n {
						t.Errorf("%d segments; want %d on each of 2 servers", segments, n)
					}
					keys, next = keys[:0], r<<20
				}
				class, _ := layout.ClassOf(size + layout.Hardened.Overhead())
				full := noFree(class.String(), uint64(segments))
				wait(4*r + 2)
				for !t.Failed() {
					k := uint64(next)
					next++
					err := c.Insert(k, value(k, r, size), soon(rt))
					if err != nil && err.Error() == full {
						break
					}
					if err != nil {
						t.Errorf("round %d: INSERT %d of %d bytes: %v; %+v", r, len(keys), size, err, g.server.Snapshot())
					}
					keys = append(keys, k)
				}
				wait(4*r + 3)
				if used, all := len(keys)*class.Size(), segments*largest.Size(); used*100 < all*95 {
					t.Errorf("round %d: full with %d keys of %d bytes, in nodes with %d of %d bytes; %+v", r, len(keys), size, used, all, g.server.Snapshot())
				}
				wait(4*r + 4)
				for len(keys) > 0 && !t.Failed() {
					k := keys[len(keys)-1]
					keys = keys[:len(keys)-1]
					if _, err := c.Get(k, nil, soon(rt)); err != nil {
						t.Errorf("round %d: GET: %v", r, err)
					}
					if err := c.Delete(k, soon(rt)); err != nil {
						t.Errorf("round %d: DELETE with %d keys left: %v; %+v", r, len(keys), err, g.server.Snapshot())
					}
				}
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	g.run()
	if err := g.Settle(3 * time.Second); err != nil {
		t.Fatal(err)
	}
	if st := g.server.Snapshot(); st.Keys > 0 || st.Held > 0 || st.Linked > 0 || st.Broken > 0 {
		t.Errorf("%+v", st)
	}
}

// The error of a full store says what is full, and every key can be deleted.
func TestFullStoreCanBeEmptied(t *testing.T) {
	const region = 66*layout.UsualSegment + 200<<10
	g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 8192}, region)
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		n := uint64(0)
		for ; ; n++ {
			err := c.Insert(n, value(n, 0, 4000), soon(rt))
			if errors.Is(err, kv.ErrFull) {
				if want := noFree("4096 B", g.server.Snapshot().Segments); err.Error() != want {
					return fmt.Errorf("%w; want %q", err, want)
				}
				break
			}
			if err != nil {
				return err
			}
		}
		st, err := c.Stats(soon(rt))
		if err != nil {
			return err
		}
		if most := st.Segments * layout.UsualSegment / 4096; n*100 < 95*most || st.ClassNodes[5] < n {
			return fmt.Errorf("full at %d keys of %d: %+v", n, most, st)
		}
		for k := range n {
			if err := c.Delete(k, soon(rt)); err != nil {
				return fmt.Errorf("DELETE %d of %d: %w", k, n, err)
			}
		}
		return nil
	})
	g.run()
}

// noFree returns the text of the error for a shared space of n segments without a free node of a
// size.
func noFree(size string, n uint64) string {
	return fmt.Sprintf("store is full: no free node of %s, and all %d segments are in use; `rdmalab clover stat` shows how the nodes are used", size, n)
}

// If the classes have fixed parts, the error of a full part names that part, because nodes of other
// sizes may be free.
func TestErrorNamesTheFullPart(t *testing.T) {
	g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Keyed, Keys: 64}, 256<<10)
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		n := uint64(0)
		for ; ; n++ {
			err := c.Insert(n, value(n, 0, 2000), soon(rt))
			if errors.Is(err, kv.ErrFull) {
				const want = "store is full: the fixed part for nodes of 2048 B: 24 nodes; `rdmalab clover stat` shows how the nodes are used"
				if err.Error() != want {
					return fmt.Errorf("%w; want %q", err, want)
				}
				break
			}
			if err != nil {
				return err
			}
		}
		if err := c.Insert(n, value(n, 0, 200), soon(rt)); err != nil {
			return fmt.Errorf("INSERT of a smaller node: %w", err)
		}
		return nil
	})
	g.run()
}

// A value that is longer than a segment of a small store is too large, and the store goes on.
func TestValueLongerThanASegment(t *testing.T) {
	g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 64}, 300<<10)
	cfg := clover.Config{MaxValue: layout.MaxSlab}
	g.clientOf("cn0", cfg, func(c *clover.Client, rt verbs.Runtime) error {
		if err := c.Insert(1, value(1, 0, 8000), soon(rt)); err != nil {
			return err
		}
		for _, n := range []int{8200, 40000} {
			err := c.Insert(2, value(2, 0, n), soon(rt))
			if want := fmt.Sprintf("%v: %d bytes, a node of this store holds at most 8168", kv.ErrTooLarge, n); !errors.Is(err, kv.ErrTooLarge) || err.Error() != want {
				return fmt.Errorf("INSERT of %d bytes: %w; want %q", n, err, want)
			}
		}
		if err := c.Put(1, value(1, 1, 8200), soon(rt)); !errors.Is(err, kv.ErrTooLarge) {
			return fmt.Errorf("PUT of 8200 bytes: %w", err)
		}
		return c.Put(1, value(1, 2, 100), soon(rt))
	})
	g.run()
}

// A client of a small store, whose segments have one node of 4 KiB or two of 2 KiB, asks for several
// nodes at a time.
func TestLargeValuesInASmallStore(t *testing.T) {
	for _, size := range []int{1500, 3000} {
		g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 64}, 220<<10)
		g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
			if err := c.Insert(1, value(1, 0, size), soon(rt)); err != nil {
				return err
			}
			const puts = 200
			calls := 0
			for i := range puts {
				if err := c.Put(1, value(1, i, size), soon(rt)); err != nil {
					return err
				}
				calls += c.Last().RPCs
			}
			if calls > puts/3 {
				t.Errorf("%d PUTs of %d bytes took %d calls of the metadata server", puts, size, calls)
			}
			return nil
		})
		g.run()
	}
}
