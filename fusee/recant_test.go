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

// A split begins when an INSERT swaps the primary of its slot, and the deadline of the INSERT
// passes before it can be repeated. It withdraws its object, which would be pending for good: the
// split ends, and another client inserts the key.
func TestTheDeadlineOfAnINSERTPassesWhenASplitBegins(t *testing.T) {
	key, late := keysThat(true, 1, 1)[0], 0
	for long := 4 * time.Microsecond; long <= 10*time.Microsecond && !t.Failed(); long += time.Microsecond {
		var g *rig
		var super layout.Superblock
		var frame wire.Frame
		armed, swaps := false, 0
		g = newRig(t, 2, simrack.Options{Trace: func(ev *simnet.Event) {
			if !armed || ev.Kind != simnet.Sent || ev.Link() != "cn0" || wire.ParseFrame(ev.Frame, &frame) != nil || frame.BTH.Opcode != wire.RCCmpSwap {
				return
			}
			if swaps++; swaps == 2 { // that of the primary
				g.flipped(super, 2)
			}
		}})
		g.format(fusee.FormatConfig{Groups: 1, Grow: 1, Replicas: 1, IndexReplicas: 2, Block: 16 << 10})
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			super = c.Super()
			if err := c.Insert(1<<20, nil, soon(rt)); err != nil { // the block is there, and the connections
				return err
			}
			armed = true
			err := c.Insert(key, nil, rt.Now().Add(long))
			armed = false
			if swaps >= 2 && errors.Is(err, kv.ErrTimeout) {
				late++
			}
			return nil
		})
		g.run()
		g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
			if _, err := c.RecoverAll(rt.Now().Add(20 * time.Millisecond)); err != nil {
				return err
			}
			if err := c.Insert(key, nil, rt.Now().Add(20*time.Millisecond)); err != nil && !errors.Is(err, kv.ErrExists) {
				return err
			}
			return nil
		})
		g.run()
		g.audit(super, long.String())
	}
	if late == 0 {
		t.Error("no deadline passes after the swap of the primary")
	}
}

// flipped makes the first n servers show that the only subtable is being split and that each bucket
// is moving.
func (g *rig) flipped(s layout.Superblock, n int) {
	for i := range n {
		g.poke(i, s.Shape.EntryAt(0), layout.Entry{Splitting: true}.Word())
		for off := uint64(0); off < s.Shape.SubtableLen(); off += layout.BucketLen {
			g.poke(i, s.Shape.SubtableAt(0)+off, layout.Header{Depth: 1, Moving: true}.Word())
		}
	}
}
