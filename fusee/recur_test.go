package fusee_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
)

// halfBlock is the length of a value of whose objects a block of 16 KiB has two.
const halfBlock = 7000

// exhaust gives all blocks that were never used to a client that does not exist.
func (g *rig) exhaust(s layout.Superblock) {
	for server := range g.memory {
		for n := range s.Shape.Blocks {
			if at := s.Shape.BlockTable(0) + 8*uint64(n); binary.LittleEndian.Uint64(g.memory[server][at:]) == 0 {
				binary.LittleEndian.PutUint64(g.memory[server][at:], uint64(layout.BlockUse(99).For(1)))
			}
		}
	}
}

// A client dies while it writes an object that it has used more often than all others of the block.
// The block's next owner gives the object no version that it has had: otherwise a client that was
// hung since then takes the slot of another key for the one that it has read, and this key is lost.
func TestATornObjectHasNoEarlierVersion(t *testing.T) {
	for _, uses := range []int{5, 300} { // more than a client may use without a change of the block's word
		var g *rig
		var frame wire.Frame
		hangs, dies := false, false
		g = newRig(t, 1, simrack.Options{Trace: func(ev *simnet.Event) {
			switch {
			case wire.ParseFrame(ev.Frame, &frame) != nil:
			case hangs && ev.Kind == simnet.Sent && ev.Link() == "cn2" && ev.Dir() == fault.Down && frame.BTH.Opcode == wire.RCReadResponseOnly:
				hangs = false
				g.At(g.Now(), func() { // its threads alone: the NIC receives the response
					g.Host("cn2").HangAll()
					g.Host("cn2").Resume()
				})
			case dies && ev.Kind == simnet.Delivered && ev.Link() == "ms0" && frame.BTH.Opcode == wire.RCWriteFirst:
				dies = false
				g.At(g.Now(), g.Host("cn0").Crash)
			}
		}})
		g.format(fusee.FormatConfig{Groups: 1, Block: 16 << 10})
		first, second := uint64(5), uint64(6)
		for layout.HashOf(second).Fingerprint() != layout.HashOf(first).Fingerprint() {
			second++
		}
		long := func(key uint64, n int) []byte { return kv.MakeValue(key, uint64(n), halfBlock) }
		var super layout.Superblock
		var dead uint32
		var seen, torn layout.Ref
		stage := 0
		upTo := func(rt verbs.Runtime, n int) {
			for stage < n {
				rt.Sleep(time.Microsecond)
			}
		}
		g.client("cn2", func(c *fusee.Client, rt verbs.Runtime) error { // it is hung between its READ and its CAS
			super = c.Super()
			err := c.Insert(1001, kv.MakeValue(1001, 1, 100), soon(rt))
			stage = 1
			upTo(rt, 4)
			_, err2 := c.Get(first, nil, soon(rt))
			stage, hangs = 5, true
			if err := c.Put(first, kv.MakeValue(first, 77, 100), rt.Now().Add(time.Minute)); err != nil && !errors.Is(err, kv.ErrNotFound) {
				return err
			}
			return errors.Join(err, err2)
		})
		g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error { // it recovers
			upTo(rt, 1)
			err := c.Insert(1002, kv.MakeValue(1002, 1, 100), soon(rt))
			stage = 2
			upTo(rt, 6)
			rt.Sleep(time.Millisecond)
			if err := errors.Join(err, c.Recover(dead, soon(rt))); err != nil {
				return err
			}
			at, err := g.slotOf(super, first)
			if err != nil {
				return err
			}
			if err := errors.Join(c.Delete(first, soon(rt)), c.Insert(second, long(second, 0), soon(rt))); err != nil {
				return err
			}
			if to, err := g.slotOf(super, second); to != at {
				return fmt.Errorf("the second key is at %d, the first one was at %d: %w", to, at, err)
			}
			last := 0
			for n := 1; n <= 2*uses+5 && g.slotValue(super, at) != seen; n++ {
				last = n
				if err := c.Put(second, long(second, n), soon(rt)); err != nil {
					return err
				}
			}
			if ref := g.slotValue(super, at); ref.Place == seen.Place && ref.Version <= seen.Version {
				t.Errorf("%d uses: the slot was %+v, and is %+v", uses, seen, ref)
			}
			g.Host("cn2").ResumeAll()
			rt.Sleep(100 * time.Millisecond)
			if got, err := c.Get(second, nil, soon(rt)); err != nil || string(got) != string(long(second, last)) {
				t.Errorf("%d uses: GET of a key whose PUT was acknowledged: %.20x, %v", uses, got, err)
			}
			return nil
		})
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error { // it dies
			dead = c.Number()
			upTo(rt, 2)
			if err := c.Insert(first, long(first, 0), soon(rt)); err != nil {
				return err
			}
			g.exhaust(super)
			for range uses { // all of these use the second object
				if err := c.Insert(first, long(first, 1), soon(rt)); !errors.Is(err, kv.ErrExists) {
					return err
				}
			}
			if err := c.Put(first, long(first, 2), soon(rt)); err != nil {
				return err
			}
			at, err := g.slotOf(super, first)
			if err != nil {
				return err
			}
			seen = g.slotValue(super, at)
			stage = 4
			upTo(rt, 5)
			rt.Sleep(time.Millisecond) // the other client has read the slot
			if err := c.Put(first, long(first, 3), soon(rt)); err != nil {
				return err
			}
			torn = g.slotValue(super, at)
			g.Host("cn0").SetFaults([]fault.Rule{{Link: "cn0", Dir: fault.Up, Kind: fault.Loss, Match: fault.Match{Opcodes: []wire.Opcode{wire.RCWriteLast}}}})
			stage, dies = 6, true
			return fmt.Errorf("it lives: %w", c.Put(first, long(first, 4), soon(rt)))
		})
		g.run()
		if seen.Place == torn.Place || int(seen.Version) < uses || stage != 6 {
			t.Errorf("%d uses: stage %d, the slot was %+v and then %+v", uses, stage, seen, torn)
		}
	}
}

// A block whose objects have had the last version is not reused: a slot would have a value
// twice. Clients go on in other blocks, and find no memory when all blocks are spent.
func TestNoVersionFollowsTheLastOne(t *testing.T) {
	g := newRig(t, 1, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 1, Block: 16 << 10})
	const key, changes = 5, 10
	var super layout.Superblock
	word := func(n int) *[8]byte { return (*[8]byte)(g.memory[0][super.Shape.BlockTable(0)+8*uint64(n):]) }
	use := func(n int) layout.BlockUse { return layout.BlockUse(binary.LittleEndian.Uint64(word(n)[:])) }
	had := map[layout.Ref]int{}
	g.client("cn1", func(c *fusee.Client, _ verbs.Runtime) error {
		super = c.Super()
		return nil
	})
	g.run()
	binary.LittleEndian.PutUint64(word(0)[:], uint64(layout.UseLeft(0, layout.MaxVersion-2, 7)))
	for i := range 2 {
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			n := i * changes
			if i == 0 {
				if err := c.Insert(key, kv.MakeValue(key, 0, halfBlock), soon(rt)); err != nil {
					return err
				}
			}
			at, err := g.slotOf(super, key)
			if err != nil {
				return err
			}
			for range changes {
				n++
				if err := c.Put(key, kv.MakeValue(key, uint64(n), halfBlock), soon(rt)); err != nil {
					return fmt.Errorf("change %d: %w", n, err)
				}
				ref := g.slotValue(super, at)
				if was, twice := had[ref]; twice {
					t.Errorf("the slot has the value %+v after the changes %d and %d", ref, was, n)
				}
				had[ref] = n
			}
			if got, err := c.Get(key, nil, soon(rt)); err != nil || string(got) != string(kv.MakeValue(key, uint64(n), halfBlock)) {
				t.Errorf("GET: %.20x, %v", got, err)
			}
			return nil
		})
		g.run()
		if out := g.audit(super, "a spent block"); out.Taken[0] != 3 || !use(0).Spent() || use(1).Spent() {
			t.Errorf("client %d: %d blocks, their uses are %#x and %#x; want three, the first one is spent", i, out.Taken[0], uint64(use(0)), uint64(use(1)))
		}
	}
	g.exhaust(super)
	for n := 1; n <= 2; n++ {
		binary.LittleEndian.PutUint64(word(n)[:], uint64(use(n).By(99)))
	}
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		if err := c.Put(key, kv.MakeValue(key, 99, halfBlock), soon(rt)); !errors.Is(err, kv.ErrFull) || !errors.Is(err, kv.ErrNoEffect) {
			t.Errorf("a PUT when all blocks are spent or have owners: %v", err)
		}
		return nil
	})
	g.run()
}
