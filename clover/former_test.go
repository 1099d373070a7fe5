package clover

import (
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// After a client has connected to a memory server again, it uses the memory there only if it finds
// the superblock that it knows: the memory may have been formatted again, or belong to another
// server.
func TestMemoryOfAnotherGenerationIsNotUsed(t *testing.T) {
	for name, change := range map[string]func(b *layout.Superblock){
		"the same":           func(*layout.Superblock) {},
		"another generation": func(b *layout.Superblock) { b.Generation += 2 },
		"another server's":   func(b *layout.Superblock) { b.Server++ },
		"none":               nil,
	} {
		box := &casLoser{port: 2}
		y := newEpochStoryOn(t, func(n simnet.Node) simnet.Node {
			box.Node = n
			return box
		})
		y.client("cn0", 16, func(c *Client, rt verbs.Runtime) error {
			if err := c.Insert(wornKey, padded("first"), inTwoMinutes(rt)); err != nil {
				return err
			}
			s := &c.session.servers[0]
			b := make([]byte, layout.SuperblockLen)
			o := &c.session.ops[0]
			c.session.fab.Read(o, s.target(0), c.session.at.in, len(b))
			if err := errors.Join(c.session.do(inTwoMinutes(rt), o), c.session.fab.MR().ReadAt(b, c.session.at.in)); err != nil {
				return err
			}
			var super layout.Superblock
			if err := super.Parse(b); err != nil {
				return err
			}
			if clear(b); change != nil {
				change(&super)
				super.Put(b)
			}
			err := c.session.fab.MR().WriteAt(b, c.session.at.out)
			c.session.fab.Write(o, s.target(0), c.session.at.out, len(b))
			if err := errors.Join(err, c.session.do(inTwoMinutes(rt), o), c.session.fab.Break(s.peer)); err != nil {
				return err
			}
			err = c.session.reach(0, inTwoMinutes(rt))
			if want := name == "the same"; (err == nil) != want || !want && !errors.Is(err, errMemory) || s.lost == want {
				t.Errorf("%s: %v, the memory is lost: %v", name, err, s.lost)
			}
			y.rack.At(rt.Now(), y.rack.Host("cn0").CrashApps) // the metadata server does not know of the change
			return nil
		})
		if err := y.rack.Run(); err != nil {
			t.Fatal(err)
		}
	}
}
