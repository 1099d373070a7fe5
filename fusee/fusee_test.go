package fusee_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/kvtest"
	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// stores are arrangements with 1 to 3 replicas of objects and index.
var stores = []struct {
	servers int
	fusee.FormatConfig
}{
	{1, fusee.FormatConfig{Groups: 40}},
	{2, fusee.FormatConfig{Groups: 41, Depth: 1, Replicas: 1, IndexReplicas: 2, Block: 32 << 10}},
	{3, fusee.FormatConfig{Groups: 7, Depth: 3, Replicas: 2, IndexReplicas: 1}},
	{3, fusee.FormatConfig{Groups: 40, Replicas: 3, IndexReplicas: 3}},
}

func name(servers int, f fusee.FormatConfig) string {
	return fmt.Sprintf("%d servers, %d of objects, %d of the index", servers, f.Replicas, f.IndexReplicas)
}

// The conformance tests that every store passes.
func TestConformance(t *testing.T) {
	for _, s := range stores {
		t.Run(name(s.servers, s.FormatConfig), func(t *testing.T) {
			g := newRig(t, s.servers, simrack.Options{})
			g.format(s.FormatConfig)
			var b *fusee.Client
			done := false
			g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
				for b = c; !done; {
					rt.Sleep(time.Second)
				}
				return nil
			})
			g.client("cn0", func(a *fusee.Client, rt verbs.Runtime) error {
				for b == nil {
					rt.Sleep(time.Millisecond)
				}
				defer func() { done = true }()
				return kvtest.Check(kvtest.Env{A: a, B: b, Now: rt.Now, Largest: a.MaxValue(), Exact: true})
			})
			g.run()
		})
	}
}

// With hundreds of keys, the store has the same content as a map, and objects are reused.
func TestAgainstAMap(t *testing.T) {
	for _, s := range stores {
		t.Run(name(s.servers, s.FormatConfig), func(t *testing.T) {
			g := newRig(t, s.servers, simrack.Options{})
			g.format(s.FormatConfig)
			g.client("cn0", againstAMap)
			g.run()
		})
	}
}

func againstAMap(c *fusee.Client, rt verbs.Runtime) error {
	r := rand.New(rand.NewPCG(1, 2))
	want := map[uint64][]byte{}
	for i := range uint64(3000) {
		key := r.Uint64N(200)
		v := kv.MakeValue(key, i, 16+int(i%3)*200)
		_, there := want[key]
		var err, wish error
		switch r.IntN(4) {
		case 0:
			if wish = kv.ErrNotFound; there {
				wish = nil
				want[key] = v
			}
			err = c.Put(key, v, soon(rt))
		case 1:
			if wish = kv.ErrNotFound; there {
				wish = nil
			}
			delete(want, key)
			err = c.Delete(key, soon(rt))
		default:
			if wish = kv.ErrExists; !there {
				wish = nil
				want[key] = v
			}
			err = c.Insert(key, v, soon(rt))
		}
		if !errors.Is(err, wish) {
			return fmt.Errorf("operation %d on key %d: %w, want %w", i, key, err, wish)
		}
		got, err := c.Get(key, nil, soon(rt))
		if v, there := want[key]; there != (err == nil) || there && string(got) != string(v) {
			return fmt.Errorf("operation %d: GET %d: %x %w, want %x %v", i, key, got, err, v, there)
		}
	}
	return nil
}

var updates = flag.Int("updates", 3000, "how many updates TestUpdatesLeaveNoBlockBehind makes")

// Many updates by clients with different blocks need no more memory than the keys: through the
// bitmaps, objects that other clients have replaced come back to their owners.
//
//	go test ./fusee -run UpdatesLeaveNoBlockBehind -v -timeout 10h -args -updates 10000000
func TestUpdatesLeaveNoBlockBehind(t *testing.T) {
	g := newRig(t, 2, simrack.Options{MaxEvents: max(1e9, uint64(*updates)*mostEvents)})
	g.format(fusee.FormatConfig{Groups: 8, Replicas: 2, IndexReplicas: 1, Block: 16 << 10})
	blocks := map[int]int{}
	turn := 0
	for id := range 3 {
		g.client(fmt.Sprintf("cn%d", id), func(c *fusee.Client, rt verbs.Runtime) error {
			for ; turn < *updates; rt.Sleep(10 * time.Microsecond) {
				if turn%3 != id {
					continue
				}
				key := uint64(turn / 3 % 20)
				v := kv.MakeValue(key, uint64(turn), 100)
				err := c.Put(key, v, soon(rt))
				if errors.Is(err, kv.ErrNotFound) {
					err = c.Insert(key, v, soon(rt))
				}
				blocks[id] += c.Last().RPCs
				turn++
				if err != nil {
					return err
				}
			}
			if c.Leaked() > 0 {
				return fmt.Errorf("%d objects have leaked", c.Leaked())
			}
			return nil
		})
	}
	g.run()
	for id, n := range blocks {
		if n > 3 {
			t.Errorf("client %d has taken %d blocks for 20 keys", id, n)
		}
	}
	t.Log(blocks)
}

// Of clients that insert one key at the same time exactly one succeeds, whatever slots they choose.
func TestInsertsOfOneKey(t *testing.T) {
	for _, s := range stores {
		g := newRig(t, s.servers, simrack.Options{})
		g.format(s.FormatConfig)
		won := map[uint64]int{}
		arrived, retries := 0, 0
		const clients, keys = 4, 60
		for id := range clients {
			g.client(fmt.Sprintf("cn%d", id), func(c *fusee.Client, rt verbs.Runtime) error {
				for key := range uint64(keys) {
					for arrived++; arrived < clients*int(key+1); {
						rt.Sleep(time.Microsecond)
					}
					rt.Sleep(time.Duration(rt.Rand().IntN(20000)))
					switch err := c.Insert(key, kv.MakeValue(key, uint64(id), 20), soon(rt)); {
					case err == nil:
						won[key]++
					case !errors.Is(err, kv.ErrExists):
						return err
					}
					retries += c.Last().Retries
					if _, err := c.Get(key, nil, soon(rt)); err != nil {
						return fmt.Errorf("GET %d after an INSERT: %w", key, err)
					}
				}
				return nil
			})
		}
		g.run()
		for key := range uint64(keys) {
			if won[key] != 1 {
				t.Errorf("%s: %d INSERTs of key %d have succeeded", name(s.servers, s.FormatConfig), won[key], key)
			}
		}
		if retries == 0 {
			t.Errorf("%s: no INSERT met another one", name(s.servers, s.FormatConfig))
		}
		t.Log(name(s.servers, s.FormatConfig), retries)
	}
}

// A full store refuses values and changes nothing; its keys can still be read and changed.
func TestFull(t *testing.T) {
	g := newRigOf(t, 1, large, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 1, Block: 16 << 10})
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		full := 0
		for key := range uint64(40) { // three buckets have 21 slots
			if err := c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt)); errors.Is(err, kv.ErrFull) && errors.Is(err, kv.ErrNoEffect) {
				full++
			} else if err != nil {
				return err
			}
		}
		if full < 19 || full > 33 {
			t.Errorf("%d of 40 keys have found no slot", full)
		}
		if err := c.Delete(0, soon(rt)); err != nil {
			return err
		}
		if err := c.Insert(0, kv.MakeValue(0, 2, 100), soon(rt)); err != nil {
			return fmt.Errorf("an INSERT after a DELETE: %w", err)
		}
		refused := 0
		for size := 100; size < c.MaxValue(); size += 100 { // each length of objects takes a block
			switch err := c.Put(0, kv.MakeValue(0, uint64(size), size), soon(rt)); {
			case errors.Is(err, kv.ErrFull) && errors.Is(err, kv.ErrNoEffect):
				refused++
			case err != nil:
				return err
			}
		}
		if refused > 0 {
			t.Errorf("%d lengths have found no memory", refused)
		}
		return nil
	})
	g.run()
}
