package fusee_test

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/bits"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
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
			var last [clients * keys]uint64 // the number of the value that was acknowledged last
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
						last[key] = 1
						err = errors.Join(err, spent("PUT", old, c.Put(old, kv.MakeValue(old, 4+n, 100), quick(rt))))
						last[old] = 4 + n
						_, e := c.Get(old, nil, quick(rt))
						err = errors.Join(err, spent("GET", old, e))
						if n%5 == 4 {
							err = errors.Join(err, spent("DELETE", key, c.Delete(key, quick(rt))), spent("INSERT", key, c.Insert(key, kv.MakeValue(key, 3, 100), quick(rt))))
							last[key] = 3
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
					if n, err := kv.CheckValue(key, v); err != nil || n != last[key] {
						return fmt.Errorf("GET %d: value %d, want %d: %w", key, n, last[key], err)
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
				if rtts > mostPause {
					t.Errorf("%d operations take %d round trips, want at most %d", n, rtts, mostPause)
				}
			}
		})
	}
}

// quick is a deadline that an operation misses only if it does not go on.
func quick(rt verbs.Runtime) clock.Time { return rt.Now().Add(50 * time.Millisecond) }

var (
	growKeys = flag.Int("keys", 6_000, "how many keys TestAPauseOfGrowth inserts")
	growMem  = flag.Int("memory", 16, "memory of a server in TestAPauseOfGrowth, in MiB")
)

// mostPause is how many round trips an operation takes at most while the index grows. An INSERT alone
// takes 3 with one replica, and 6 with several and a master.
const mostPause = 10

// An index that begins with room for about 1,000 keys grows while 8 clients insert keys, replace and read
// them, with 1 to 3 replicas of it, without and with a master. Operations pause for a few round trips, also
// those of the clients that work on splits, and those whose key moves meanwhile.
//
//	go test ./fusee -run APauseOfGrowth/alone -v -timeout 10h -args -keys 10000000 -memory 4000
func TestAPauseOfGrowth(t *testing.T) {
	t.Run("alone", func(t *testing.T) { pauseOfGrowth(t, 1, false) })
	t.Run("two", func(t *testing.T) { pauseOfGrowth(t, 2, false) })
	t.Run("master", func(t *testing.T) { pauseOfGrowth(t, 2, true) })
	t.Run("three", func(t *testing.T) { pauseOfGrowth(t, 3, true) })
}

// mostEvents is how many events of the simulation an operation, or the few operations of one key, take at most.
const mostEvents = 1000

// pauseOfGrowth is TestAPauseOfGrowth with a number of servers, each of which has the index, and perhaps
// with a master.
func pauseOfGrowth(t *testing.T, servers int, master bool) {
	g := newRigOf(t, servers, *growMem<<20, simrack.Options{MaxEvents: max(1e9, uint64(*growKeys)*mostEvents)})
	g.format(fusee.FormatConfig{Groups: 64, Grow: bits.Len(uint(*growKeys / 500)), IndexReplicas: servers})
	if ready := false; master {
		g.master("cn3", &ready)
		g.Host("cn0").Go("waits", false, func(ctx verbs.Context) {
			for !ready {
				ctx.Runtime().Sleep(time.Millisecond)
			}
		})
		g.run()
	}
	const clients = 8
	each := *growKeys / clients
	rtts := map[int]int{}
	var longest time.Duration
	for id := range clients {
		g.client(fmt.Sprintf("cn%d", id%4), func(c *fusee.Client, rt verbs.Runtime) error {
			timed := func(do func() error) error {
				from := rt.Now()
				err := do()
				longest = max(longest, rt.Now().Sub(from))
				rtts[c.Last().RTTs]++
				return err
			}
			// The first operation of a client waits for its first block, which no client can request ahead.
			if err := c.Insert(uint64(id*each), kv.MakeValue(uint64(id*each), 0, 100), quick(rt)); err != nil {
				return err
			}
			for n := range each {
				key, old := uint64(id*each+n), uint64(id*each+n/2)
				var err error
				if n > 0 {
					err = timed(func() error { return c.Insert(key, kv.MakeValue(key, 1, 100), quick(rt)) })
				}
				err = errors.Join(err,
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
			t.Errorf("%d operations take %d round trips, want at most %d", count, n, mostPause)
		}
	}
	t.Logf("the longest operation takes %v; round trips of operations: %v", longest, rtts)
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

// A recovery does not plant a leaving slot of an earlier use of an object: the object has another key now.
func TestALeavingSlotOfAnEarlierUseIsNotPlanted(t *testing.T) {
	g := newRig(t, 1, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 40, Grow: 2, Replicas: 1, IndexReplicas: 1, Block: 16 << 10})
	key := uint64(1)
	for layout.HashOf(key).Prefix()&3 != 2 {
		key++
	}
	var super layout.Superblock
	h := g.Host("cn0")
	h.Go("dies", false, func(ctx verbs.Context) {
		c, err := fusee.Open(g.config(h, ctx), soon(ctx.Runtime()))
		if err == nil {
			err = c.Insert(key, nil, soon(ctx.Runtime()))
		}
		if err != nil {
			t.Error(err)
			return
		}
		super = c.Super()
	})
	g.run()
	s := &super.Shape
	word := func(off uint64) uint64 { return binary.LittleEndian.Uint64(g.memory[0][off:]) }
	put := func(off, v uint64) { binary.LittleEndian.PutUint64(g.memory[0][off:], v) }
	at, err := g.slotOf(super, key)
	if err != nil {
		t.Fatal(err)
	}
	ref := layout.Hardened.Ref(layout.Slot(word(at)))
	old := ref
	old.Version--
	place := at + 8
	if (place&63) == 0 || word(place) != 0 {
		place = at - 8
	}
	put(s.EntryAt(0), layout.Entry{Splitting: true}.Word())
	put(place, uint64(layout.Hardened.Leave(layout.Hardened.Slot(old)))) // of a key that has moved and was replaced
	for b := uint64(0); b < s.SubtableLen(); b += 64 {
		put(s.SubtableAt(0)+b, layout.Header{Depth: 1, Moving: true}.Word())
	}
	gone := old
	gone.Place += 5
	put(place+s.SubtableAt(1)-s.SubtableAt(0), uint64(layout.Hardened.Emptied(gone))) // the moved key was deleted
	g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
		_, err := c.RecoverAll(soon(rt))
		ghost := word(place + s.SubtableAt(2) - s.SubtableAt(0))
		if ghost != 0 {
			t.Errorf("subtable 2, not in use, has the slot %#x; version %d, the object has %d", ghost, layout.Hardened.Ref(layout.Slot(ghost)).Version, ref.Version)
		}
		if err != nil {
			return err
		}
		out, err := c.Audit(soon(rt))
		if err != nil || out.Keys != 1 || len(out.Defects) > 0 {
			t.Errorf("%+v, %v", out, err)
		}
		return nil
	})
	g.run()
}

// Splits that move no key end before the buckets are full again, however many groups there are: the client
// works more on them when its buckets have little room.
func TestSplitsEndBeforeBucketsAreFull(t *testing.T) {
	for _, groups := range []int{16, 64, 256} {
		g := newRigOf(t, 1, large, simrack.Options{})
		g.format(fusee.FormatConfig{Groups: groups, Grow: 2, Block: 16 << 10})
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			most, n := 0, 0
			for key := uint64(0); ; key++ {
				if layout.HashOf(key).Prefix()&3 != 0 {
					continue
				}
				err := c.Insert(key, nil, soon(rt))
				if errors.Is(err, kv.ErrFull) {
					break
				}
				if err != nil {
					return err
				}
				n++
				most = max(most, c.Last().RTTs)
			}
			t.Logf("%d groups: %d keys, an INSERT takes %d round trips", groups, n, most)
			if most > mostPause {
				t.Errorf("%d groups: an INSERT takes %d round trips, want at most %d", groups, most, mostPause)
			}
			return nil
		})
		g.run()
	}
}

// With more than 3 replicas the index does not grow.
func TestGrowthNeedsAtMostThreeReplicas(t *testing.T) {
	g := newRig(t, 4, simrack.Options{})
	h := g.Host("cn0")
	h.Go("format", false, func(ctx verbs.Context) {
		for replicas := 3; replicas <= 4; replicas++ {
			for grow := range 2 {
				f := fusee.FormatConfig{Groups: 4, Grow: grow, Replicas: 1, IndexReplicas: replicas, Block: 16 << 10}
				_, err := fusee.Format(g.config(h, ctx), f, soon(ctx.Runtime()))
				if refused := err != nil && strings.Contains(err.Error(), "at most 3 replicas of the index"); refused != (replicas == 4 && grow == 1) {
					t.Errorf("%d replicas, grows %d times: %v", replicas, grow, err)
				}
			}
		}
	})
	g.run()
}
