package fusee_test

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
)

// The CAS by which a client takes a block over is never executed, and giving the block back fails,
// too. Later the client takes it over: it is not given back while the client uses it.
func TestABlockInUseIsNotGivenBack(t *testing.T) {
	g := newRig(t, 1, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 8, Block: 16 << 10})
	var super layout.Superblock
	word := func() layout.BlockUse {
		return layout.BlockUse(binary.LittleEndian.Uint64(g.memory[0][super.Shape.BlockTable(0):]))
	}
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		super = c.Super()
		return c.Insert(1, kv.MakeValue(1, 1, 100), soon(rt))
	})
	g.run()
	stage := 0
	upTo := func(rt verbs.Runtime, n int) {
		for stage < n {
			rt.Sleep(time.Microsecond)
		}
	}
	g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
		h := g.Host("cn1")
		h.SetFaults([]fault.Rule{{Link: "cn1", Dir: fault.Up, Kind: fault.Loss, Match: fault.Match{Opcodes: []wire.Opcode{wire.RCCmpSwap}}}})
		err := c.Insert(2, kv.MakeValue(2, 1, 100), rt.Now().Add(2*time.Millisecond))
		if !errors.Is(err, kv.ErrTimeout) || !word().Left() {
			t.Errorf("first: %v %#x", err, word())
		}
		_, err = c.Get(1, nil, rt.Now().Add(2*time.Millisecond))
		t.Log("get", err)
		h.SetFaults(nil)
		if err := c.Insert(2, kv.MakeValue(2, 1, 100), soon(rt)); err != nil {
			return err
		}
		rt.Sleep(time.Second)
		if _, err := c.Get(2, nil, soon(rt)); err != nil {
			t.Error(err)
		}
		if used := word().Client() == c.Number(); !used && !word().Left() {
			t.Errorf("the block is in use by %d, and has the word %#x", c.Number(), uint64(word()))
		}
		stage = 1
		upTo(rt, 2)
		err = c.Insert(4, kv.MakeValue(4, 1, 100), soon(rt))
		stage = 3
		return err
	})
	g.client("cn2", func(c *fusee.Client, rt verbs.Runtime) error {
		upTo(rt, 1)
		err := c.Insert(3, kv.MakeValue(3, 1, 100), soon(rt))
		stage = 2
		upTo(rt, 3)
		for k := uint64(1); k <= 4; k++ {
			if _, err := c.Get(k, nil, soon(rt)); err != nil {
				t.Errorf("GET %d of an acknowledged INSERT: %v", k, err)
			}
		}
		return err
	})
	g.run()
	g.audit(super, "after it")
}
