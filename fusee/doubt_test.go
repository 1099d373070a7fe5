package fusee_test

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
)

// A client that recovers a dead one leaves a block, and does not hear that the CAS was executed. A
// third client takes the block over. The first one does not settle it once more: it would withdraw
// an INSERT of the new owner, which is acknowledged.
func TestABlockThatWasLeftIsNotSettledAgain(t *testing.T) {
	g := newRig(t, 1, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 40, Block: 16 << 10})
	g.params.Timeout, g.params.RetryCount, g.lease = 10, 7, time.Millisecond
	var super layout.Superblock
	var dead uint32
	stage := 0
	upTo := func(rt verbs.Runtime, n int) {
		for stage < n {
			rt.Sleep(time.Microsecond)
		}
	}
	word := func() layout.BlockUse {
		return layout.BlockUse(binary.LittleEndian.Uint64(g.memory[0][super.Shape.BlockTable(0):]))
	}
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		super, dead = c.Super(), c.Number()
		if err := c.Insert(1, kv.MakeValue(1, 1, 100), soon(rt)); err != nil {
			return err
		}
		stage = 1
		for {
			rt.Sleep(time.Second)
		}
	})
	g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error { // it recovers
		upTo(rt, 1)
		g.At(g.Now(), func() { g.Host("cn0").CrashApps() })
		rt.Sleep(time.Millisecond)
		stage = 2
		err := c.Recover(dead, rt.Now().Add(5*time.Millisecond))
		if !errors.Is(err, kv.ErrTimeout) || !word().Left() {
			t.Errorf("a recovery whose last answer is lost: %v, word %#x", err, uint64(word()))
		}
		g.Host("cn1").SetLink(true)
		stage = 3
		upTo(rt, 5)
		rt.Sleep(10 * time.Millisecond) // it settles again after the lease
		_, err = c.Get(1, nil, soon(rt))
		stage = 6
		return err
	})
	g.client("cn3", func(c *fusee.Client, rt verbs.Runtime) error { // it cuts links
		upTo(rt, 2)
		for !word().Left() {
			rt.Sleep(50 * time.Nanosecond)
		}
		g.Host("cn1").SetLink(false)
		upTo(rt, 4)
		for {
			if _, err := g.slotOf(super, 77); err == nil {
				break
			}
			rt.Sleep(50 * time.Nanosecond)
		}
		g.Host("cn2").SetLink(false)
		rt.Sleep(time.Microsecond)
		stage = 5
		upTo(rt, 6)
		g.Host("cn2").SetLink(true)
		return nil
	})
	g.client("cn2", func(c *fusee.Client, rt verbs.Runtime) error { // the new owner
		upTo(rt, 3)
		if err := c.Insert(2, kv.MakeValue(2, 1, 100), soon(rt)); err != nil {
			return err
		}
		if word().Client() != c.Number() {
			t.Errorf("the block has the use %#x, want client %d", uint64(word()), c.Number())
		}
		stage = 4
		if err := c.Insert(77, kv.MakeValue(77, 1, 100), soon(rt)); err != nil {
			return err
		}
		if _, err := c.Get(77, nil, soon(rt)); err != nil {
			t.Errorf("GET of a key whose INSERT was acknowledged: %v", err)
		}
		return nil
	})
	g.run()
}

// An object whose operation has an unknown outcome, and whose bit shows that it was replaced, is
// free once: no two keys get it.
func TestAnObjectInDoubtIsFreedOnce(t *testing.T) {
	g := newRig(t, 1, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 40, Block: 16 << 10})
	g.lease = 5 * time.Second
	var super layout.Superblock
	stage, cutKey := 0, uint64(0)
	upTo := func(rt verbs.Runtime, n int) {
		for stage < n {
			rt.Sleep(time.Microsecond)
		}
	}
	g.client("cn3", func(c *fusee.Client, rt verbs.Runtime) error {
		for n := range 2 {
			upTo(rt, 1+n)
			at, err := g.slotOf(super, cutKey)
			if err != nil {
				return err
			}
			was := g.slotValue(super, at)
			for g.slotValue(super, at) == was {
				rt.Sleep(50 * time.Nanosecond)
			}
			g.Host("cn0").SetLink(false)
		}
		return nil
	})
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		super = c.Super()
		for key := range uint64(2) {
			if err := c.Insert(key, kv.MakeValue(key, 1, 100+500*int(key)), soon(rt)); err != nil {
				return err
			}
		}
		for n, key := range []uint64{1, 0} {
			cutKey, stage = key, 1+n
			rt.Sleep(10 * time.Microsecond)
			err := c.Put(key, kv.MakeValue(key, 2, 100+500*int(key)), rt.Now().Add(time.Millisecond))
			if !errors.Is(err, kv.ErrTimeout) {
				t.Errorf("a PUT whose answer is lost: %v", err)
			}
			g.Host("cn0").SetLink(true)
			if key == 1 {
				if _, err = c.Get(key, nil, soon(rt)); err != nil {
					return err
				}
			}
		}
		stage = 3
		upTo(rt, 4)
		rt.Sleep(time.Millisecond)
		last := uint64(0)
		for n := uint64(100); n < 100+60; n++ { // until the queue is almost empty
			if err := c.Insert(n, kv.MakeValue(n, 1, 100), soon(rt)); err != nil {
				return err
			}
			last = n
		}
		for n := last + 1; n < last+6; n++ {
			if n > last+1 {
				rt.Sleep(6 * time.Second)
			}
			if err := c.Insert(n, kv.MakeValue(n, 1, 100), soon(rt)); err != nil {
				return err
			}
		}
		for n := uint64(100); n < last+6; n++ {
			if got, err := c.Get(n, nil, rt.Now().Add(10*time.Millisecond)); err != nil || string(got) != string(kv.MakeValue(n, 1, 100)) {
				t.Errorf("GET %d: %v", n, err)
			}
		}
		return nil
	})
	g.client("cn2", func(c *fusee.Client, rt verbs.Runtime) error {
		upTo(rt, 3)
		err := c.Put(0, kv.MakeValue(0, 3, 100), soon(rt))
		err = errors.Join(err, c.Close())
		stage = 4
		return err
	})
	g.run()
	g.audit(super, "end")
}

// What a PUT has replaced that has won, and whose client does not know it, is found again.
func TestWhatAnUnknownPutHasReplacedIsFound(t *testing.T) {
	g := newRig(t, 1, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 40, Block: 16 << 10})
	g.lease, g.ahead = time.Microsecond, -1
	var super layout.Superblock
	armed, arm := false, verbs.Gate(nil)
	g.client("cn3", func(c *fusee.Client, rt verbs.Runtime) error {
		arm = rt.NewGate()
		for range 30 {
			for !armed {
				_ = arm.Wait(clock.Never)
			}
			at, err := g.slotOf(super, 0)
			if err != nil {
				return err
			}
			was := g.slotValue(super, at)
			for g.slotValue(super, at) == was {
				rt.Sleep(50 * time.Nanosecond)
			}
			g.Host("cn0").SetLink(false)
			armed = false
		}
		return nil
	})
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		super = c.Super()
		if err := c.Insert(0, kv.MakeValue(0, 1, 100), soon(rt)); err != nil {
			return err
		}
		for n := range 30 {
			armed = true
			if arm != nil { // the other client has begun
				arm.Open()
			}
			rt.Sleep(10 * time.Microsecond)
			err := c.Put(0, kv.MakeValue(0, uint64(n), 100), rt.Now().Add(time.Millisecond))
			if !errors.Is(err, kv.ErrTimeout) {
				t.Errorf("a PUT whose answer is lost: %v", err)
			}
			g.Host("cn0").SetLink(true)
			if _, err := c.Get(0, nil, soon(rt)); err != nil {
				return err
			}
		}
		for n := range 1000 {
			if err := c.Put(0, kv.MakeValue(0, uint64(n), 100), soon(rt)); err != nil {
				return err
			}
		}
		n := uint64(100)
		for ; n < 100+61; n++ { // a client asks for a block when one object of 63 is left
			if err := c.Insert(n, kv.MakeValue(n, 1, 100), soon(rt)); err != nil {
				return err
			}
		}
		out, err := c.Audit(soon(rt))
		if err == nil && out.Owners[c.Number()] != 1 {
			t.Errorf("%d keys in %d blocks, want 62 in one", out.Keys, out.Owners[c.Number()])
		}
		return err
	})
	g.run()
}

// A client whose request fails while it takes a block over leaves the block again as it was, before its
// next request: it, or another client, can take the block over. None of its objects is lost.
func TestABlockThatWasNotTakenOverIsLeft(t *testing.T) {
	for _, lost := range []bool{false, true} { // the answer to the CAS of the block's word
		var g *rig
		var frame wire.Frame
		armed := false
		g = newRig(t, 1, simrack.Options{Trace: func(ev *simnet.Event) {
			if !armed || ev.Link() != "cn1" || ev.Dir() != fault.Down || wire.ParseFrame(ev.Frame, &frame) != nil || frame.BTH.Opcode != wire.RCAtomicAck ||
				lost != (ev.Kind == simnet.Sent) {
				return
			}
			armed = false
			g.At(g.Now(), func() { g.Host("cn1").SetLink(false) })
		}})
		g.format(fusee.FormatConfig{Groups: 2, Block: 16 << 10})
		var super layout.Superblock
		word := func() layout.BlockUse {
			return layout.BlockUse(binary.LittleEndian.Uint64(g.memory[0][super.Shape.BlockTable(0):]))
		}
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			super = c.Super()
			return c.Insert(1, kv.MakeValue(1, 1, 100), soon(rt))
		})
		g.run()
		left := word()
		g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
			armed = true
			err := c.Insert(2, kv.MakeValue(2, 1, 100), rt.Now().Add(2*time.Millisecond))
			if !errors.Is(err, kv.ErrTimeout) || !errors.Is(err, kv.ErrNoEffect) || word().Client() != c.Number() {
				t.Errorf("an INSERT that fails while its client takes a block over: %v, word %#x", err, uint64(word()))
			}
			g.Host("cn1").SetLink(true)
			if _, err := c.Get(1, nil, soon(rt)); err != nil {
				return err
			}
			if word() != left {
				t.Errorf("after the next operation the block has the word %#x, want %#x", uint64(word()), uint64(left))
			}
			if err := c.Insert(2, kv.MakeValue(2, 1, 100), soon(rt)); err != nil {
				return err
			}
			if word().Client() != c.Number() {
				t.Errorf("the block has the word %#x, want client %d", uint64(word()), c.Number())
			}
			return nil
		})
		g.run()
		if out := g.audit(super, "after it"); out.Taken[0] != 1 || out.Keys != 2 {
			t.Errorf("%d blocks, %d keys, want 1 and 2", out.Taken[0], out.Keys)
		}
	}
}
