package fusee_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
)

// A GET of a key whose place the client remembers reads slot and object at the same time. If the
// slot is read at once and the object late, its memory may have the value of another key by then.
// The version shows it: the object is whole, and another one.
func TestAnObjectThatIsReadLateIsAnotherOne(t *testing.T) {
	var g *rig
	var frame wire.Frame
	const key, other, objects = 7, 8, 63 // of a block
	watch, lost, done := false, false, false
	g = newRig(t, 2, simrack.Options{Trace: func(ev *simnet.Event) {
		if !watch || ev.Kind != simnet.Sent || ev.Link() != "cn0" || ev.Dir() != fault.Up || wire.ParseFrame(ev.Frame, &frame) != nil ||
			frame.BTH.Opcode != wire.RCReadRequest || frame.RETH.Length == 128 {
			return
		}
		watch = false
		g.At(g.Now(), func() { // the READ of the object is lost, and repeated later
			object := g.Host("ms1")
			object.Hang()
			g.At(g.Now().Add(20*time.Microsecond), func() {
				object.Resume()
				lost = true
			})
		})
	}})
	g.params = rdmacm.Params{Timeout: 14} // 67 ms
	g.format(fusee.FormatConfig{Groups: 40, Replicas: 1, Block: 16 << 10})
	ready := false
	g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
		for n := range uint64(2 * objects) { // the first block is one of ms0: key's object is in the second
			if err := c.Insert(1000+n, kv.MakeValue(n, 1, 100), soon(rt)); err != nil {
				return err
			}
		}
		for n := range uint64(2 * objects) {
			if n%2 == 0 {
				if err := c.Delete(1000+n, soon(rt)); err != nil {
					return err
				}
			}
		}
		for { // until key's object is on ms1
			if err := c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt)); err != nil {
				return err
			}
			at, err := g.slotOf(c.Super(), key)
			if err != nil {
				return err
			}
			if slot := g.slotValue(c.Super(), at); slot.Server == 1 {
				break
			}
			if err := c.Delete(key, soon(rt)); err != nil {
				return err
			}
		}
		if err := c.Insert(other, kv.MakeValue(other, 1, 100), soon(rt)); err != nil {
			return err
		}
		for ready = true; !lost; {
			rt.Sleep(time.Microsecond)
		}
		if err := c.Put(key, kv.MakeValue(key, 2, 100), soon(rt)); err != nil {
			return err
		}
		for n := range uint64(3 * objects) { // the memory of key's object is used for the other key's
			if err := c.Put(other, kv.MakeValue(other, 2+n, 100), soon(rt)); err != nil {
				return err
			}
			if at, err := g.slotOf(c.Super(), other); err != nil || g.slotValue(c.Super(), at).Server == 1 && n > 2*objects {
				break
			}
		}
		done = true
		return nil
	})
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		for !ready {
			rt.Sleep(time.Microsecond)
		}
		if _, err := c.Get(key, nil, soon(rt)); err != nil {
			return err
		}
		watch = true
		got, err := c.Get(key, nil, soon(rt))
		if !lost || !done {
			t.Errorf("the READ was lost: %v; the memory was reused: %v", lost, done)
		}
		if err != nil || string(got) != string(kv.MakeValue(key, 1, 100)) && string(got) != string(kv.MakeValue(key, 2, 100)) {
			return fmt.Errorf("GET of key %d: %x, %w", key, got, err)
		}
		return nil
	})
	g.run()
}
