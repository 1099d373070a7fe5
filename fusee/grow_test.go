package fusee_test

import (
	"errors"
	"flag"
	"fmt"
	"math/bits"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/topo/simrack"
)

// The index grows while clients insert, replace, read and delete keys, with 1 to 3 replicas: no key is
// lost or doubled, and no operation takes more round trips than the bound.
func TestTheIndexGrowsUnderLoad(t *testing.T) {
	for _, s := range []struct {
		servers int
		fusee.FormatConfig
	}{
		{1, fusee.FormatConfig{Groups: 8, Grow: 5}},
		{2, fusee.FormatConfig{Groups: 8, Depth: 1, Grow: 4, Replicas: 1, IndexReplicas: 2}},
		{3, fusee.FormatConfig{Groups: 8, Grow: 5, Replicas: 1, IndexReplicas: 3}},
	} {
		t.Run(name(s.servers, s.FormatConfig), func(t *testing.T) {
			g := newRig(t, s.servers, simrack.Options{})
			s.Block = 16 << 10
			g.format(s.FormatConfig)
			const clients, keys = 6, 250
			longest := map[int]int{}
			running := clients
			for id := range clients {
				g.client(fmt.Sprintf("cn%d", id%4), func(c *fusee.Client, rt verbs.Runtime) error {
					defer func() { running-- }()
					spent := func(what string, key uint64, err error) error {
						longest[c.Last().RTTs]++
						if err != nil {
							err = fmt.Errorf("%s %d: %w", what, key, err)
						}
						return err
					}
					for n := range uint64(keys) {
						key := uint64(id)*keys + n
						err := spent("INSERT", key, c.Insert(key, kv.MakeValue(key, 1, 100), quick(rt)))
						old := uint64(id)*keys + n/2
						err = errors.Join(err, spent("PUT", old, c.Put(old, kv.MakeValue(old, 2+n, 100), quick(rt))))
						_, e := c.Get(old, nil, quick(rt))
						err = errors.Join(err, spent("GET", old, e))
						if n%5 == 4 {
							err = errors.Join(err, spent("DELETE", key, c.Delete(key, quick(rt))), spent("INSERT", key, c.Insert(key, kv.MakeValue(key, 3, 100), quick(rt))))
						}
						if err != nil {
							return err
						}
					}
					return nil
				})
			}
			g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
				for running > 0 {
					rt.Sleep(time.Millisecond)
				}
				for key := range uint64(clients * keys) {
					v, err := c.Get(key, nil, quick(rt))
					if err != nil {
						return fmt.Errorf("GET %d: %w", key, err)
					}
					if _, err := kv.CheckValue(key, v); err != nil {
						return fmt.Errorf("GET %d: %w", key, err)
					}
				}
				if _, err := c.RecoverAll(quick(rt)); err != nil {
					return err
				}
				out, err := c.Audit(quick(rt))
				if err != nil || out.Keys != clients*keys || len(out.Defects) > 0 || out.Unfinished > 0 {
					t.Errorf("%+v: %s, %v", out, strings.Join(out.Defects, "\n"), err)
				}
				t.Logf("%d keys in %d slots of %d subtables, %d being split; round trips of operations: %v", out.Keys, out.Slots, out.Subtables, out.Splitting, longest)
				return nil
			})
			g.run()
			for rtts, n := range longest {
				if rtts > mostRTTs {
					t.Errorf("%d operations take %d round trips", n, rtts)
				}
			}
		})
	}
}

// mostRTTs is how many round trips an operation may take in a small index of which a large part is being
// split. With full buckets an INSERT works on the split until its buckets are settled.
const mostRTTs = 25

// quick is a deadline that an operation misses only if it does not go on.
func quick(rt verbs.Runtime) clock.Time { return rt.Now().Add(50 * time.Millisecond) }

var (
	growKeys = flag.Int("keys", 6_000, "how many keys TestAPauseOfGrowth inserts")
	growMem  = flag.Int("memory", 16, "memory of a server in TestAPauseOfGrowth, in MiB")
)

// mostPause is how many round trips an operation takes at most in an index whose subtables have room for
// more than some keys; an INSERT alone takes 3, with one replica.
const mostPause = 12

// An index that begins with room for about 1,000 keys grows while 8 clients insert keys, replace and read
// them. Operations pause for a few round trips, also those of the clients that work on splits.
//
//	go test ./fusee -run APauseOfGrowth -v -timeout 10h -args -keys 10000000 -memory 4000
func TestAPauseOfGrowth(t *testing.T) {
	g := newRigOf(t, 1, *growMem<<20, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 64, Grow: bits.Len(uint(*growKeys / 500))})
	const clients = 8
	each := *growKeys / clients
	rtts := map[int]int{}
	var longest time.Duration
	for id := range clients {
		g.client(fmt.Sprintf("cn%d", id%4), func(c *fusee.Client, rt verbs.Runtime) error {
			timed := func(do func() error) error {
				from := rt.Now()
				err := do()
				if cost := c.Last(); cost.RPCs == 0 { // an operation that needs a block reads the bitmaps of those that the client has
					longest = max(longest, rt.Now().Sub(from))
					rtts[cost.RTTs]++
				}
				return err
			}
			for n := range each {
				key, old := uint64(id*each+n), uint64(id*each+n/2)
				err := errors.Join(
					timed(func() error { return c.Insert(key, kv.MakeValue(key, 1, 100), quick(rt)) }),
					timed(func() error { return c.Put(old, kv.MakeValue(old, uint64(n), 100), quick(rt)) }),
					timed(func() error { _, err := c.Get(old, nil, quick(rt)); return err }),
				)
				if err != nil {
					return fmt.Errorf("key %d: %w", key, err)
				}
			}
			return nil
		})
	}
	g.run()
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		if _, err := c.RecoverAll(rt.Now().Add(time.Hour)); err != nil {
			return err
		}
		out, err := c.Audit(rt.Now().Add(time.Hour))
		if err != nil || out.Keys != clients*each || len(out.Defects) > 0 || out.Unfinished > 0 {
			t.Errorf("%+v: %s, %v", out, strings.Join(out.Defects, "\n"), err)
		}
		t.Logf("%d keys in %d slots of %d subtables", out.Keys, out.Slots, out.Subtables)
		return nil
	})
	g.run()
	for n, count := range rtts {
		if n > mostPause {
			t.Errorf("%d operations take %d round trips", count, n)
		}
	}
	t.Logf("the longest operation takes %v; round trips of operations: %v", longest, rtts)
}

// A master refuses a store that can grow.
func TestAStoreThatGrowsHasNoMaster(t *testing.T) {
	g := newRig(t, 2, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 4, Grow: 1, IndexReplicas: 2})
	h := g.Host("cn0")
	h.Go("master", false, func(ctx verbs.Context) {
		if _, err := fusee.OpenMaster(g.config(h, ctx), soon(ctx.Runtime())); err == nil || !strings.Contains(err.Error(), "formatted without Grow") {
			t.Errorf("a master of a store that can grow: %v", err)
		}
	})
	g.run()
}

// A client that closes in the middle of a split leaves no key on its way.
func TestAClosedClientLeavesNoMove(t *testing.T) {
	g := newRig(t, 2, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 4, Grow: 3, IndexReplicas: 2})
	splits := 0
	for key := uint64(0); key < 150; key += 3 {
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			var err error
			for n := key; n < key+3; n++ {
				err = errors.Join(err, c.Insert(n, kv.MakeValue(n, 1, 100), soon(rt)))
			}
			return err
		})
		g.run()
		g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
			out, err := c.Audit(soon(rt))
			if err != nil || out.Unfinished > 0 || len(out.Defects) > 0 {
				return fmt.Errorf("after key %d: %+v, %w", key, out, err)
			}
			splits += out.Splitting
			return nil
		})
		g.run()
	}
	if splits == 0 {
		t.Error("no client closes in the middle of a split")
	}
}
