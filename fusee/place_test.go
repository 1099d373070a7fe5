package fusee_test

import (
	"errors"
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

// pokeAll writes a word in the first n replicas of the index.
func (g *rig) pokeAll(n int, at, v uint64) {
	for i := range n {
		g.poke(i, at, v)
	}
}

// A PUT or DELETE reads the slot of an INSERT in a bucket that is moving, and the object a few
// round trips later. Meanwhile the INSERT has lost the same place of the twin to an INSERT of
// another key, which has changed the backup there and not the primary. So it has put its object
// into another slot, and shown it. The operation changes that slot: it does not plant the object in
// the place of the twin as well.
func TestAPlaceOfTheTwinThatAnINSERTHasLost(t *testing.T) {
	for _, op := range []string{"PUT", "DELETE"} {
		var g *rig
		var frame wire.Frame
		meanwhile := func() {}
		g = newRig(t, 2, simrack.Options{Trace: func(ev *simnet.Event) {
			if ev.Kind == simnet.Sent && ev.Link() == "cn0" && wire.ParseFrame(ev.Frame, &frame) == nil &&
				frame.BTH.Opcode == wire.RCReadRequest && frame.RETH.Length == layout.Unit {
				meanwhile()
				meanwhile = func() {}
			}
		}})
		g.format(fusee.FormatConfig{Groups: 1, Grow: 1, Replicas: 1, IndexReplicas: 2, Block: 16 << 10})
		keys := keysThat(true, 1, 2)
		key := keys[0]
		g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
			return c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt))
		})
		g.run()
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			if err := errors.Join(c.Insert(keys[1], nil, soon(rt)), c.Delete(keys[1], soon(rt))); err != nil { // it has a block
				return err
			}
			super := c.Super()
			s := &super.Shape
			at, err := g.slotOf(super, key)
			if err != nil {
				return err
			}
			shift := s.SubtableAt(1) - s.SubtableAt(0)
			slot := g.word(0, at)
			other := at/layout.BucketLen*layout.BucketLen + 8
			for other == at || g.word(0, other) != 0 {
				other += 8
			}
			g.flipped(super, 2)
			g.poke(1, at+shift, uint64(layout.Hardened.Slot(layout.Ref{Units: 1, Place: 3, Version: 9}))) // of the other INSERT
			moved := false
			meanwhile = func() {
				moved = true
				g.pokeAll(2, at, uint64(layout.Hardened.Emptied(layout.Hardened.Ref(layout.Slot(slot)))))
				g.pokeAll(2, other+shift, slot)
			}
			if op == "PUT" {
				err = c.Put(key, kv.MakeValue(key, 2, 100), soon(rt))
			} else {
				err = c.Delete(key, soon(rt))
			}
			if !moved {
				t.Errorf("%s: the object is not read", op)
			}
			if v := g.word(0, at+shift); v != 0 {
				t.Errorf("%s: the place of the twin has got %#x, the slot of the key was %#x", op, v, slot)
			}
			if v := g.word(0, other+shift); err != nil || v == slot {
				t.Errorf("%s: %v, the slot has %#x", op, err, v)
			}
			g.poke(1, at+shift, 0) // the other INSERT has never been there
			return nil
		})
		g.run()
		g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
			_, err := c.RecoverAll(soon(rt))
			out, e := c.Audit(soon(rt))
			if want := map[string]int{"PUT": 1}[op]; out.Keys != want || len(out.Defects) > 0 {
				t.Errorf("%s: %+v", op, out)
			}
			return errors.Join(err, e)
		})
		g.run()
	}
}

// An INSERT loses two slots that are being cleaned after a split has moved their keys. Two clients
// clean the first one, and one of them is late with a CAS of a backup, from the value of the
// INSERT. The INSERT does not bring that value into the slot again, where the late CAS would find
// it: the replicas would differ.
func TestASlotThatAnINSERTHasLostGetsItsValueNoMore(t *testing.T) {
	var g *rig
	var frame wire.Frame
	const replicas = 3
	var first, second, value uint64 // the offsets of the slots, and the value of the INSERT
	leaving := func(place uint64) layout.Slot {
		return layout.Hardened.Leave(layout.Hardened.Slot(layout.Ref{Units: 1, Place: place, Version: 1}))
	}
	cleaned := func(place uint64) uint64 {
		return uint64(layout.Hardened.Emptied(layout.Hardened.Ref(leaving(place))))
	}
	phase := 0
	g = newRig(t, replicas, simrack.Options{Trace: func(ev *simnet.Event) {
		switch now := uint64(0); {
		case phase == 0:
		case phase == 1:
			if now = g.word(1, first); now != uint64(leaving(1)) { // one cleaning client goes on, the other one is late
				phase, value = 2, now
				g.pokeAll(replicas, first, cleaned(1))
			}
		case phase == 2 && ev.Kind == simnet.Sent && ev.Link() == "cn0" && wire.ParseFrame(ev.Frame, &frame) == nil && frame.BTH.Opcode == wire.RCCmpSwap:
			phase = 3
			g.pokeAll(replicas, second, cleaned(2))
		case g.word(1, first) == value: // the late CAS
			g.poke(1, first, cleaned(1))
			phase = 4
		}
	}})
	g.format(fusee.FormatConfig{Groups: 1, Grow: 1, Replicas: 1, IndexReplicas: replicas, Block: 16 << 10})
	keys := keysThat(false, 1, 12)
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		for _, key := range keys[:6] { // so that the next object's value is greater than those of the cleaned slots
			if err := errors.Join(c.Insert(key, nil, soon(rt)), c.Delete(key, soon(rt))); err != nil {
				return err
			}
		}
		super := c.Super()
		s := &super.Shape
		g.flipped(super, replicas)
		place, shift := uint64(0), s.SubtableAt(1)-s.SubtableAt(0)
		for bucket := s.SubtableAt(0); bucket < s.SubtableAt(1); bucket += layout.BucketLen {
			for at := bucket + 8; at < bucket+layout.BucketLen; at += 8 {
				place++
				g.pokeAll(replicas, at, uint64(leaving(place)))
			}
		}
		key := keys[6]
		main, _ := layout.Hardened.Buckets(layout.HashOf(key), s.Mains())
		first = layout.SlotAt(s.CombinedAt(0, main), 0)
		second = layout.SlotAt(s.CombinedAt(0, main), 1)
		for n, at := range []uint64{first, second} {
			g.pokeAll(replicas, at, uint64(leaving(uint64(n+1))))
			g.pokeAll(replicas, at+shift, uint64(layout.Hardened.Emptied(layout.Ref{Place: 40 + uint64(n), Version: 1}))) // deleted since then
		}
		if _, err := c.Get(keys[7], nil, soon(rt)); !errors.Is(err, kv.ErrNotFound) { // the client finds that there is a split
			t.Error(err)
		}
		g.poke(2, first, cleaned(1))
		phase = 1
		err := c.Insert(key, nil, rt.Now().Add(time.Millisecond))
		if phase < 3 {
			t.Errorf("the INSERT loses %d slots, want 2", phase-1)
		}
		if phase == 4 {
			t.Errorf("the slot has had the value %#x twice", value)
		}
		phase = 0
		for i := range replicas {
			if v := g.word(i, first); v != g.word(0, first) {
				t.Errorf("replica %d has %#x, the primary %#x", i, v, g.word(0, first))
			}
		}
		return err
	})
	g.run()
}

// Published clients that insert one key choose the same slot, without backups. The one that loses
// the slot looks for the key again, as the public code does, and finds it.
func TestAPublishedINSERTThatLosesItsSlotFindsTheKey(t *testing.T) {
	g := newRig(t, 1, simrack.Options{})
	g.published = true
	g.format(fusee.FormatConfig{Groups: 4, Replicas: 1, IndexReplicas: 1, Block: 16 << 10})
	inserted, exists := 0, 0
	g.together(2, func(_ int, c *fusee.Client, rt verbs.Runtime) error {
		switch err := c.Insert(1, nil, soon(rt)); {
		case err == nil:
			inserted++
		case errors.Is(err, kv.ErrExists):
			exists++
		default:
			return err
		}
		return nil
	})
	if inserted != 1 || exists != 1 {
		t.Errorf("%d INSERTs of one key succeed, %d find it", inserted, exists)
	}
}
