package fusee_test

import (
	"encoding/binary"
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

// slotOf returns the offset of the slot of a key in the index.
func (g *rig) slotOf(s layout.Superblock, key uint64) (at uint64, err error) {
	h := layout.HashOf(key)
	one, two := s.Shape.Format.Buckets(h, s.Shape.Mains())
	for _, main := range []int{one, two} {
		off := s.Shape.CombinedAt(0, main)
		var b layout.Combined
		if err := b.Parse(main, g.memory[0][off:off+layout.CombinedLen]); err != nil {
			return 0, err
		}
		for n, slot := range b.Slots {
			if !s.Shape.Format.Empty(slot) && byte(slot) == h.Fingerprint() {
				return layout.SlotAt(off, n), nil
			}
		}
	}
	return 0, fmt.Errorf("key %d has no slot", key)
}

// slotValue says what the slot at an offset of the primary means.
func (g *rig) slotValue(s layout.Superblock, at uint64) layout.Ref {
	return s.Shape.Format.Ref(layout.Slot(binary.LittleEndian.Uint64(g.memory[0][at:])))
}

// A key whose winner has died between its CAS of the backups and that of the primary costs a client
// that wants to change it no memory: it uses its object again. Other keys are not concerned.
func TestAStuckKeyCostsNoMemory(t *testing.T) {
	g := newRig(t, 3, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 8, Replicas: 2, IndexReplicas: 3, Block: 16 << 10})
	const key, dead = 7, 1 << 40
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		v := kv.MakeValue(key, 1, 100)
		if err := errors.Join(c.Insert(key, v, soon(rt)), c.Insert(8, v, soon(rt))); err != nil {
			return err
		}
		at, err := g.slotOf(c.Super(), key)
		if err != nil {
			return err
		}
		was := binary.LittleEndian.Uint64(g.memory[0][at:])
		binary.LittleEndian.PutUint64(g.memory[1][at:], was^dead) // the winner has swapped both backups
		binary.LittleEndian.PutUint64(g.memory[2][at:], was^dead)
		for n := range 3000 {
			err := c.Put(key, kv.MakeValue(key, uint64(n), 100), rt.Now().Add(200*time.Microsecond))
			if n%2 == 1 {
				err = c.Delete(key, rt.Now().Add(200*time.Microsecond))
			}
			if !errors.Is(err, kv.ErrTimeout) || !errors.Is(err, kv.ErrNoEffect) {
				return fmt.Errorf("change %d of a stuck key: %w", n, err)
			}
		}
		if n := c.Leaked(); n > 0 {
			t.Errorf("%d objects have leaked", n)
		}
		if got, err := c.Get(key, nil, soon(rt)); err != nil || string(got) != string(v) {
			t.Errorf("GET of a stuck key: %x, %v", got, err)
		}
		if err := c.Put(8, v, soon(rt)); err != nil {
			t.Errorf("another key: %v", err)
		}
		binary.LittleEndian.PutUint64(g.memory[1][at:], was) // a loser's CAS can still succeed here
		if err := c.Put(key, v, rt.Now().Add(200*time.Microsecond)); !errors.Is(err, kv.ErrTimeout) || errors.Is(err, kv.ErrNoEffect) {
			t.Errorf("a PUT whose value is in a backup: %v", err)
		}
		if n := c.Leaked(); n != 1 {
			t.Errorf("%d objects have leaked, want that in the backup", n)
		}
		return nil
	})
	g.run()
}

// A client that has died with its INSERT half done does not keep others from inserting other keys
// into its bucket, and none of them is there twice.
func TestADeadInsertBlocksNoOtherKey(t *testing.T) {
	g := newRig(t, 2, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 1, Replicas: 1, IndexReplicas: 2, Block: 16 << 10})
	const keys = 16 // of 21 slots
	inserted, shape := 0, layout.Shape{}
	for id := range 2 {
		g.client(fmt.Sprintf("cn%d", id), func(c *fusee.Client, rt verbs.Runtime) error {
			shape = c.Super().Shape
			if id == 0 { // these are the slots that INSERTs choose first
				for main := range shape.Mains() {
					first := layout.SlotAt(shape.CombinedAt(0, main), main%2*layout.BucketSlots)
					binary.LittleEndian.PutUint64(g.memory[1][first:], uint64(layout.Hardened.Slot(layout.Ref{Units: 1, Version: 9})))
				}
			}
			var longest time.Duration
			for key := range uint64(keys) {
				began := rt.Now()
				switch err := c.Insert(key, kv.MakeValue(key, 1, 100), rt.Now().Add(time.Second)); {
				case err == nil:
					inserted++
				case !errors.Is(err, kv.ErrExists):
					return fmt.Errorf("INSERT of key %d: %w", key, err)
				}
				longest = max(longest, rt.Now().Sub(began))
			}
			t.Logf("client %d: the longest INSERT took %v", id, longest)
			for key := range uint64(keys) {
				if _, err := c.Get(key, nil, soon(rt)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	g.run()
	if inserted != keys || g.used(shape) != keys {
		t.Errorf("%d of %d keys were inserted, they have %d slots", inserted, keys, g.used(shape))
	}
}

// used counts the slots of the index that are not empty.
func (g *rig) used(s layout.Shape) (n int) {
	for main := range s.Mains() {
		at := s.CombinedAt(0, main)
		for i := range layout.CombinedSlots {
			if main%2 == 1 && i < layout.BucketSlots {
				continue // the overflow bucket was counted with the other main bucket
			}
			slot := binary.LittleEndian.Uint64(g.memory[0][layout.SlotAt(at, i):])
			if !s.Format.Empty(layout.Slot(slot)) {
				n++
			}
		}
	}
	return n
}
