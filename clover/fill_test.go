package clover_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/topo/simrack"
)

// Many clients fill 95 % of the memory with values of one size, delete them all, and fill it again
// with another size, ten times: because the classes share the memory, the store is never full
// before that. At the end of each round it is full, the error says what is full, and keys can still
// be deleted.
func TestFillAndEmptyWithManySizes(t *testing.T) {
	const clients, region = 200, 70*layout.SegmentLen + 200<<10
	sizes := []int{4000, 100, 1000, 32000, 200, 8000, 2000, 500, 16000, 4000}
	g := newRig(t, simrack.Options{}, meta.Config{
		Format: layout.Hardened, Keys: 8192, Lease: 200 * time.Millisecond, Grace: 200 * time.Millisecond,
	}, region)
	room := 0 // bytes of all segments
	round, left := 0, 0
	keys := make([]uint64, 0, 1<<16)
	var free []uint64
	for i := range clients {
		h := g.Host(fmt.Sprintf("cn%d", i%3))
		h.Go("client", false, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			c, err := clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: g.Host("md0").Addr(), MaxValue: layout.MaxSlab}, soon(rt))
			if err != nil {
				t.Error(err)
				return
			}
			wait := func(n int) { // waits until all clients have come to the n-th barrier
				left++
				for left < n*clients {
					rt.Sleep(50 * time.Microsecond)
				}
			}
			for r, size := range sizes {
				wait(3*r + 1)
				if round == r {
					round++
					st := g.server.Snapshot()
					if room = int(st.Segments) * layout.SegmentLen; room == 0 {
						t.Error("the classes do not share the memory")
					}
					class, _ := layout.ClassOf(size + layout.Hardened.Overhead())
					keys, free = keys[:0], free[:0]
					for k := range min(room*95/100/class.Size(), 8000) {
						free = append(free, uint64(r<<20+k))
					}
				}
				wait(3*r + 2)
				for len(free) > 0 && !t.Failed() {
					k := free[len(free)-1]
					free = free[:len(free)-1]
					if err := c.Insert(k, value(k, r, size), soon(rt)); err != nil {
						t.Errorf("round %d: INSERT %d of %d bytes: %v; %+v", r, len(keys), size, err, g.server.Snapshot())
					}
					keys = append(keys, k)
				}
				wait(3*r + 3)
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
	const region = 66*layout.SegmentLen + 200<<10
	g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 8192}, region)
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		n := uint64(0)
		for ; ; n++ {
			err := c.Insert(n, value(n, 0, 4000), soon(rt))
			if errors.Is(err, kv.ErrFull) {
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
		if most := st.Segments * layout.SegmentLen / 4096; n*100 < 95*most || st.ClassNodes[5] < n {
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
