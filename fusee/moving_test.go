package fusee_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
)

// keysThat lists n keys from a number on, of which the first split of the only subtable moves all or none.
func keysThat(move bool, from uint64, n int) (out []uint64) {
	for key := from; len(out) < n; key++ {
		if layout.HashOf(key).Moves(0) == move {
			out = append(out, key)
		}
	}
	return out
}

// split marks the only subtable as being split: clients that open later work on it.
func (g *rig) split(s layout.Superblock) {
	g.poke(0, s.Shape.EntryAt(0), layout.Entry{Splitting: true}.Word())
}

// splitOnce returns what waits until a flag is set, and calls split then.
func (g *rig) splitOnce(set *bool, s *layout.Superblock) func(rt verbs.Runtime) {
	return func(rt verbs.Runtime) {
		for !*set {
			rt.Sleep(time.Microsecond)
		}
		g.split(*s)
	}
}

// A client is hung when its INSERT has seen that its bucket is open, and its object is pending yet. Another one
// splits the subtable: it does not end that before the object is valid and has been moved.
func TestASplitWaitsForPendingKeys(t *testing.T) {
	key := keysThat(true, 1000, 1)[0]
	first := &hangOn{host: "cn0", long: 20 * time.Millisecond, match: func(f *wire.Frame) bool { return f.BTH.Opcode == wire.RCAtomicAck }}
	g := newRig(t, 1, simrack.Options{Trace: func(ev *simnet.Event) { first.see(ev) }})
	first.g = g
	g.format(fusee.FormatConfig{Groups: 1, Grow: 1, Block: 16 << 10})
	var super layout.Superblock
	hung, shown := false, false
	first.then = func() { hung = true }
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		super = c.Super()
		err := c.Insert(1, kv.MakeValue(1, 1, 100), soon(rt)) // the block is there, and the connection
		first.armed = true
		err = errors.Join(err, c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt)))
		shown = true
		return err
	})
	g.clientAfter("cn1", g.splitOnce(&hung, &super), func(c *fusee.Client, rt verbs.Runtime) error {
		other := keysThat(false, 2000, 1)[0]
		err := c.Insert(other, kv.MakeValue(other, 1, 100), soon(rt)) // joins the split
		for n := uint64(2); err == nil && !shown; n++ {
			err = c.Put(other, kv.MakeValue(other, n, 100), soon(rt))
			rt.Sleep(100 * time.Microsecond)
		}
		for n := uint64(1 << 20); err == nil && n < 1<<20+50; n++ {
			err = c.Put(other, kv.MakeValue(other, n, 100), soon(rt))
		}
		if err == nil {
			if _, err = c.Get(key, nil, soon(rt)); err != nil {
				err = fmt.Errorf("GET of a key whose INSERT was acknowledged: %w", err)
			}
		}
		return err
	})
	g.run()
	if out := g.audit(super, "after it"); !hung || out.Subtables != 2 || out.Splitting != 0 {
		t.Errorf("hung %v, %d subtables, %d being split", hung, out.Subtables, out.Splitting)
	}
}

// A client is hung when it has taken keys from a subtable that is being split, and has not put them into the
// twin. Their owner looks by the index for free objects: those of these keys are none.
func TestASweepCountsObjectsOfKeysThatAreMoved(t *testing.T) {
	var g *rig
	var super layout.Superblock
	leaving := func() (n int) {
		for off := uint64(0); off < super.Shape.SubtableLen(); off += 8 {
			old, twin := g.word(0, super.Shape.SubtableAt(0)+off), g.word(0, super.Shape.SubtableAt(1)+off)
			if off%layout.BucketLen != 0 && layout.Hardened.Leaving(layout.Slot(old)) && twin == 0 {
				n++
			}
		}
		return n
	}
	mover := &hangOn{host: "cn1", long: 5 * time.Millisecond, match: func(f *wire.Frame) bool { return f.BTH.Opcode == wire.RCAtomicAck && leaving() > 1 }}
	g = newRig(t, 1, simrack.Options{Trace: func(ev *simnet.Event) { mover.see(ev) }})
	mover.g = g
	g.format(fusee.FormatConfig{Groups: 8, Grow: 1, Block: 16 << 10})
	const keysOfAKind = 28 // a block has 63 objects, and a client looks for free ones when 4 are left
	keys := append(keysThat(true, 1000, keysOfAKind), keysThat(false, 1000, keysOfAKind)...)
	loaded, hung := false, false
	mover.then = func() { hung = true }
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) (err error) {
		super = c.Super()
		for _, key := range keys {
			err = errors.Join(err, c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt)))
		}
		g.poke(0, layout.DoubtWord, g.word(0, layout.DoubtWord)+1) // a client may have lost frees
		loaded = true
		for !hung {
			rt.Sleep(time.Microsecond)
		}
		if leaving() < 2 {
			t.Error("the mover was hung too late")
		}
		for i, key := range keysThat(false, 5000, 12) { // one of the first looks for free objects
			if err = errors.Join(err, c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt))); err != nil {
				return fmt.Errorf("INSERT %d after the mover was hung: %w", i, err)
			}
			keys = append(keys, key)
		}
		rt.Sleep(2 * mover.long)
		for _, key := range keys {
			v, e := c.Get(key, nil, rt.Now().Add(50*time.Millisecond))
			if _, bad := kv.CheckValue(key, v); e != nil || bad != nil {
				return fmt.Errorf("GET %d: %w", key, errors.Join(e, bad))
			}
		}
		return err
	})
	g.clientAfter("cn1", g.splitOnce(&loaded, &super), func(c *fusee.Client, rt verbs.Runtime) error {
		key := keysThat(false, 9000, 1)[0]
		mover.armed = true
		err := c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt))
		for n := uint64(2); err == nil && !hung; n++ {
			err = c.Put(key, kv.MakeValue(key, n, 100), soon(rt))
		}
		return err
	})
	g.run()
	g.audit(super, "after it")
}

// A PUT is hung between its READ of the slot and its CAS. Meanwhile a split moves the key and cleans the slot, and
// the slot gets another key. The PUT has lost to the move, and not to another PUT: it takes effect in the twin.
func TestAPUTThatHasLostToAMoveChangesTheTwin(t *testing.T) {
	key := keysThat(true, 1000, 1)[0]
	var at, was uint64 // the slot, and its first value
	var super layout.Superblock
	put := &hangOn{host: "cn0", long: 50 * time.Millisecond, match: func(f *wire.Frame) bool { return f.BTH.Opcode == wire.RCReadResponseOnly }}
	g := newRig(t, 1, simrack.Options{Trace: func(ev *simnet.Event) { put.see(ev) }})
	put.g = g
	g.format(fusee.FormatConfig{Groups: 1, Grow: 1, Block: 16 << 10})
	hung, reused := false, false
	put.then = func() { hung = true }
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		super = c.Super()
		if err := c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt)); err != nil {
			return err
		}
		at = g.slots(super, 0)[0]
		was = g.word(0, at)
		put.armed = true
		err := c.Put(key, kv.MakeValue(key, 2, 100), soon(rt))
		if hung = true; err != nil {
			return err
		}
		v, err := c.Get(key, nil, soon(rt))
		if version, bad := kv.CheckValue(key, v); bad != nil || version != 2 {
			return errors.Join(err, bad, fmt.Errorf("GET after PUT 2 was acknowledged: value %d", version))
		}
		return err
	})
	g.clientAfter("cn1", g.splitOnce(&hung, &super), func(c *fusee.Client, rt verbs.Runtime) (err error) {
		others := keysThat(false, 2000, 20)
		for n := 0; err == nil && n < len(others) && !reused; n++ {
			err = c.Insert(others[n], kv.MakeValue(others[n], 1, 100), soon(rt))
			now := g.word(0, at)
			reused = now != was && super.Shape.Holds(layout.Hardened.Ref(layout.Slot(now)))
		}
		return err
	})
	g.run()
	if out := g.audit(super, "after it"); !reused || out.Subtables != 2 {
		t.Errorf("the slot was used again %v, %d subtables", reused, out.Subtables)
	}
}
