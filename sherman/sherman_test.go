package sherman_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/kvtest"
	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

func value(key, n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, key<<20|n+1) }

var shapes = []layout.Shape{
	{},
	{Page: 256},
	{Page: 512, Value: 16},
	{Page: 256, Value: 54},
	{Kind: layout.Published},
	{Kind: layout.Published, Page: 256},
	{Kind: layout.Published, Page: 512, Value: 24},
	{Kind: layout.Checksummed},
	{Kind: layout.Checksummed, Page: 256, Value: 24},
}

// With one client, every shape and thousands of keys, the tree has the same content as a map, in
// order.
func TestAgainstAMap(t *testing.T) {
	for _, s := range shapes {
		t.Run(s.WithDefaults().String(), func(t *testing.T) {
			g := newRig(t, simrack.Options{}, region)
			g.format(sherman.FormatConfig{Shape: s, Chunk: 4096})
			n := g.node(sherman.NodeConfig{CacheBytes: 2000})
			g.client("cn0", n, func(c *sherman.Client, rt verbs.Runtime) error { return againstAMap(c, rt, s.Kind) })
			g.run()
			st := n.Stats()
			t.Logf("%+v", st)
			if st.Splits < 8 || st.Roots < 1 || st.CacheBytes > 2000 {
				t.Errorf("the tree did not grow, or the cache did: %+v", st)
			}
		})
	}
}

func againstAMap(c *sherman.Client, rt verbs.Runtime, kind layout.Kind) error {
	r := rand.New(rand.NewPCG(1, 2))
	want := map[uint64]uint64{}
	for i := range uint64(1500) {
		key := r.Uint64N(900)
		switch {
		case i%7 == 0:
			key = 5000 - i/2 // descending
		case i%11 == 0:
			key = i << 40
		}
		if i%1000 == 999 {
			key = layout.MaxKey - i%2
		}
		_, there := want[key]
		var err, wish error
		switch r.IntN(5) {
		case 0:
			if wish = kv.ErrNotFound; there {
				wish = nil
				want[key] = i
			}
			err = c.Put(key, value(key, i), soon(rt))
		case 1:
			if wish = kv.ErrNotFound; there {
				wish = nil
			}
			delete(want, key)
			err = c.Delete(key, soon(rt))
		case 2:
			want[key] = i
			err = c.Upsert(key, value(key, i), soon(rt))
		default:
			if wish = kv.ErrExists; !there {
				wish = nil
				want[key] = i
			}
			err = c.Insert(key, value(key, i), soon(rt))
		}
		if !errors.Is(err, wish) {
			return fmt.Errorf("operation %d on key %d: %w, want %w", i, key, err, wish)
		}
		v, err := c.Get(key, nil, soon(rt))
		if n, there := want[key]; there != (err == nil) || there && string(v[:8]) != string(value(key, n)) {
			return fmt.Errorf("operation %d: GET %d: %x %w, want %x %v", i, key, v, err, value(key, n), there)
		}
	}
	return scanAll(c, rt, want)
}

func scanAll(c *sherman.Client, rt verbs.Runtime, want map[uint64]uint64) error {
	var keys []uint64
	for k := range want {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, from := range []int{0, 1, len(keys) / 2, len(keys) - 1} {
		for _, n := range []int{1, 10, 100, 1 << 20} {
			i := from
			err := c.Scan(keys[from], n, func(k uint64, v []byte) bool {
				if i >= len(keys) || k != keys[i] || string(v[:8]) != string(value(k, want[k])) {
					i = 1 << 30
					return false
				}
				i++
				return true
			}, soon(rt))
			if err != nil || i != min(from+n, len(keys)) {
				return fmt.Errorf("scan of %d from key %d: ended at %d of %d: %w", n, keys[from], i, len(keys), err)
			}
		}
	}
	return nil
}

// The conformance tests that every store passes.
func TestConformance(t *testing.T) {
	for _, kind := range []layout.Kind{layout.Hardened, layout.Published, layout.Checksummed} {
		t.Run(kind.String(), func(t *testing.T) {
			g := newRig(t, simrack.Options{}, region)
			g.format(sherman.FormatConfig{Shape: layout.Shape{Kind: kind, Value: 54, Page: 512}})
			n := g.node(sherman.NodeConfig{})
			var b *sherman.Client
			done := false
			g.client("cn1", g.node(sherman.NodeConfig{}), func(c *sherman.Client, rt verbs.Runtime) error {
				for b = c; !done; {
					rt.Sleep(time.Second)
				}
				return nil
			})
			g.client("cn0", n, func(a *sherman.Client, rt verbs.Runtime) error {
				for b == nil {
					rt.Sleep(time.Millisecond)
				}
				defer func() { done = true }()
				return kvtest.Check(kvtest.Env{A: a, B: b, Now: rt.Now, Largest: 54, Exact: kind == layout.Hardened})
			})
			g.run()
		})
	}
}
