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

// Two splits end when an INSERT swaps the primary of its slot. The client reads the directory
// again, and is hung meanwhile. The server with the first replica of its object crashes, and the
// master withdraws the object, which is pending. The INSERT does not take the slot for its own
// after that: a key that it acknowledges is there.
func TestTheMembersChangeWhileAnINSERTReadsTheDirectory(t *testing.T) {
	var g *rig
	var frame wire.Frame
	var super layout.Superblock
	phase := 0
	g = newRig(t, 3, simrack.Options{Trace: func(ev *simnet.Event) {
		if phase == 0 || phase == 4 || ev.Kind != simnet.Sent || ev.Link() != "cn0" || wire.ParseFrame(ev.Frame, &frame) != nil {
			return
		}
		switch op := frame.BTH.Opcode; {
		case phase == 1 && op == wire.RCCmpSwap:
			if phase = 0; layout.Hardened.Ref(layout.Slot(frame.AtomicETH.SwapOrAdd)).Server == 2 {
				phase = 2
			}
		case phase == 2 && op == wire.RCCmpSwap:
			phase = 3
			s := &super.Shape
			for i := range 2 {
				g.poke(i, s.EntryAt(0), layout.Entry{Depth: 2}.Word())
				for off := uint64(0); off < s.SubtableLen(); off += layout.BucketLen {
					g.poke(i, s.SubtableAt(0)+off, layout.Header{Depth: 2}.Word())
				}
			}
		case phase == 3 && op == wire.RCReadRequest && frame.RETH.Length == 8:
			phase = 4
			g.At(g.Now(), func() {
				g.Host("cn0").Hang()
				g.Host("ms2").Crash()
				g.At(g.Now().Add(time.Second), g.Host("cn0").Resume)
			})
		}
	}})
	g.format(fusee.FormatConfig{Groups: 8, Grow: 2, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
	ready := false
	g.master("cn3", &ready)
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		for !ready {
			rt.Sleep(time.Millisecond)
		}
		super = c.Super()
		for key := uint64(0); phase != 4; key++ {
			if layout.HashOf(key).Prefix()&3 != 0 {
				continue
			}
			if key > 5000 {
				return errors.New("no object is on the last server")
			}
			phase = 1
			err := c.Insert(key, kv.MakeValue(key, 1, 1+int(key%8)*250), soon(rt))
			if phase != 4 {
				phase = 0
				if err != nil {
					return err
				}
				continue
			}
			_, found := c.Get(key, nil, soon(rt))
			t.Logf("INSERT: %v, GET: %v", err, found)
			if err == nil && found != nil {
				t.Errorf("the key was acknowledged, and is not there: %v", found)
			}
		}
		return nil
	})
	g.run()
	if phase != 4 {
		t.Error("the client does not read the directory again")
	}
}
