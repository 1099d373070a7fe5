package fusee_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// bothModes runs a script of a hole of HOLES.md with published and with hardened clients. It must do
// damage with the former, and none with the latter.
func bothModes(t *testing.T, f fusee.FormatConfig, script func(g *rig) (damage string)) {
	t.Helper()
	for _, published := range []bool{true, false} {
		g := newRig(t, 2, simrack.Options{})
		g.published = published
		f.Block = 16 << 10
		g.format(f)
		damage := script(g)
		t.Logf("published: %v: %q", published, damage)
		if (damage != "") != published {
			t.Errorf("published: %v, damage %q", published, damage)
		}
	}
}

// together runs do with several clients, which begin at the same time.
func (g *rig) together(clients int, do func(id int, c *fusee.Client, rt verbs.Runtime) error) {
	ready := 0
	for id := range clients {
		g.client(fmt.Sprintf("cn%d", id%4), func(c *fusee.Client, rt verbs.Runtime) error {
			if err := c.Insert(uint64(1000+id), nil, soon(rt)); err != nil { // so that it has a block
				return err
			}
			for ready++; ready < clients; {
				rt.Sleep(time.Microsecond)
			}
			return do(id, c, rt)
		})
	}
	g.run()
}

// Hole 1: clients insert different keys, and choose the same empty slot. Published losers report
// success, and their keys are not there.
func TestHole1LosingINSERT(t *testing.T) {
	bothModes(t, fusee.FormatConfig{Groups: 1, Replicas: 1, IndexReplicas: 2}, func(g *rig) (damage string) {
		const clients = 4
		acknowledged := map[uint64]bool{}
		g.together(clients, func(id int, c *fusee.Client, rt verbs.Runtime) error {
			if err := c.Insert(uint64(id), nil, soon(rt)); err != nil {
				return err
			}
			acknowledged[uint64(id)] = true
			return nil
		})
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			lost := 0
			for key := range acknowledged {
				_, err := c.Get(key, nil, soon(rt))
				if errors.Is(err, kv.ErrNotFound) {
					lost++
				} else if err != nil {
					return err
				}
			}
			if lost > 0 {
				damage = fmt.Sprintf("%d of %d acknowledged keys are lost", lost, len(acknowledged))
			}
			return nil
		})
		g.run()
		return damage
	})
}

// Hole 2: clients delete one key at the same time. Each published one reports that it has removed it.
func TestHole2TwoDELETEs(t *testing.T) {
	bothModes(t, fusee.FormatConfig{Groups: 8, Replicas: 1, IndexReplicas: 2}, func(g *rig) (damage string) {
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error { return c.Insert(1, nil, soon(rt)) })
		g.run()
		removed := 0
		g.together(4, func(_ int, c *fusee.Client, rt verbs.Runtime) error {
			err := c.Delete(1, soon(rt))
			if err == nil {
				removed++
			} else if !errors.Is(err, kv.ErrNotFound) {
				return err
			}
			return nil
		})
		if removed != 1 {
			damage = fmt.Sprintf("%d clients have removed one key", removed)
		}
		return damage
	})
}

// Hole 3: two clients insert one key at almost the same time, while others change how full its buckets are.
// So they choose different slots, and do not notice each other.
func TestHole3OneKeyTwice(t *testing.T) {
	bothModes(t, fusee.FormatConfig{Groups: 4, Replicas: 1, IndexReplicas: 1}, func(g *rig) (damage string) {
		const rounds = 40
		var reached [2]int
		g.together(6, func(id int, c *fusee.Client, rt verbs.Runtime) error {
			for n := range rounds {
				if id > 1 { // the others come and go
					for key := uint64(100 + id); reached[0] <= n; {
						if err := errors.Join(c.Insert(key, nil, soon(rt)), c.Delete(key, soon(rt))); err != nil {
							return err
						}
						key += 4
					}
					continue
				}
				for reached[id] = n + 1; reached[1-id] <= n; {
					rt.Sleep(time.Microsecond)
				}
				rt.Sleep(time.Duration(id*n%8) * time.Microsecond)
				if err := c.Insert(uint64(n), nil, soon(rt)); err != nil && !errors.Is(err, kv.ErrExists) {
					return err
				}
			}
			return nil
		})
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			out, err := c.Audit(soon(rt))
			if len(out.Defects) > 0 {
				damage = fmt.Sprintf("%d defects: %s", len(out.Defects), out.Defects[0])
			}
			return err
		})
		g.run()
		return damage
	})
}

// Hole 4: a client replaces values of another client's objects, and frees them by a mask of 32 bits. The
// owner of the block reuses objects that are in use.
func TestHole4FreeBits(t *testing.T) {
	bothModes(t, fusee.FormatConfig{Groups: 16, Replicas: 1, IndexReplicas: 1}, func(g *rig) (damage string) {
		const keys = 60
		filled, freed := false, false
		wait := func(rt verbs.Runtime, for_ *bool) {
			for !*for_ {
				rt.Sleep(time.Microsecond)
			}
		}
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			for key := range uint64(keys) {
				if err := c.Insert(key, nil, soon(rt)); err != nil {
					return err
				}
			}
			filled = true
			wait(rt, &freed)
			for key := uint64(keys); key < keys+40; key++ {
				if err := c.Insert(key, nil, quick(rt)); errors.Is(err, kv.ErrTimeout) && g.published {
					return nil // it does not find an object of the slot's version in its buckets
				} else if err != nil {
					return err
				}
			}
			return nil
		})
		g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
			wait(rt, &filled)
			for key := uint64(keys - 24); key < keys; key++ {
				if err := c.Delete(key, soon(rt)); err != nil {
					return err
				}
			}
			rt.Sleep(time.Millisecond)
			freed = true
			return nil
		})
		g.run()
		g.client("cn2", func(c *fusee.Client, rt verbs.Runtime) error {
			out, err := c.Audit(soon(rt))
			if len(out.Defects) > 0 {
				damage = fmt.Sprintf("%d defects: %s", len(out.Defects), out.Defects[0])
			}
			return err
		})
		g.run()
		return damage
	})
}

// Holes 5 and 6: of a commit of an INSERT, and of a commit of which only a part has arrived, a published
// recovery takes the former for open and the latter for complete.
func TestHoles5And6Commits(t *testing.T) {
	for _, f := range []layout.Format{layout.Published, layout.Hardened} {
		outcome := func(old layout.Slot, n int) layout.Outcome {
			o := layout.Object{Mark: layout.Valid, Key: 3, Version: 9, Op: layout.OpInsert}
			b := o.AppendTo(f, nil)
			commit, at := o.Commit(f, old, nil)
			copy(b[at.Off:], commit[:min(n, len(commit))])
			var got layout.Object
			if err := got.Parse(f, b); err != nil {
				t.Fatal(err)
			}
			return got.Outcome
		}
		insert, part := outcome(0, 99), outcome(0x8877665544332211, 5)
		if seen := insert == layout.Committed; seen != (f == layout.Hardened) {
			t.Errorf("hole 5, %v: the commit of an INSERT is read as %v", f, insert)
		}
		if seen := part == layout.Incomplete; seen != (f == layout.Hardened) {
			t.Errorf("hole 6, %v: a part of a commit is read as %v", f, part)
		}
	}
}

// Hole 7: subtables overlap. Two replicas of the index have the same bytes, so a slot of one subtable is
// a slot of another one too: a key is in a bucket of both.
func TestHole7Subtables(t *testing.T) {
	for _, f := range []layout.Format{layout.Published, layout.Hardened} {
		s := layout.Shape{Format: f, Servers: 1, Replicas: 1, IndexReplicas: 1, Depth: 1, Subtables: 2, Groups: 8, Blocks: 1, BlockUnits: 64}
		shared, owners := 0, map[uint64]int{}
		for n := range s.Subtables {
			mine := map[uint64]bool{} // a slot of an overflow bucket is in two combined buckets
			for main := range s.Mains() {
				for i := range layout.CombinedSlots {
					mine[layout.SlotAt(s.CombinedAt(n, main), i)] = true
				}
			}
			for at := range mine {
				if owners[at]++; owners[at] == 2 {
					shared++
				}
			}
		}
		if (shared > 0) != (f == layout.Published) {
			t.Errorf("%v: %d slots are in two subtables", f, shared)
		}
	}
}
