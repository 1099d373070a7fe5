package fusee_test

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// A PUT has won one of two backups, a client that has died the other one, and the PUT is hung
// before it reads the primary. A recovery of the dead client lets the PUT win, by the smallest
// value, and leaves the primary to it. If it swapped the primary as well, the PUT could not tell
// that from the success of another change: it used the memory of its object again, although the
// slot names that.
func TestARecoveryLeavesThePrimaryToALiveWinner(t *testing.T) {
	var g *rig
	var at, old, mine uint64
	var dead uint32
	stage := 0
	g = newRig(t, 3, simrack.Options{Trace: func(*simnet.Event) {
		switch {
		case stage == 1 && g.word(1, at) != old && g.word(2, at) != old:
			stage = 2
			g.At(g.Now(), func() {
				g.Host("cn1").CrashApps()
				g.poke(2, at, old) // this CAS has not arrived
				stage = 3
			})
		case stage == 4 && g.word(2, at) != old:
			stage, mine = 5, g.word(2, at)
			g.At(g.Now(), g.Host("cn0").HangApps)
		}
	}})
	g.format(fusee.FormatConfig{Groups: 8, Replicas: 1, IndexReplicas: 3, Block: 16 << 10})
	const key, other = 1, 2
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		for _, k := range []uint64{key, other} {
			if err := c.Insert(k, kv.MakeValue(k, 1, 100), soon(rt)); err != nil {
				return err
			}
		}
		place, err := g.slotOf(c.Super(), key)
		if err != nil {
			return err
		}
		at, old = place, g.word(0, place)
		h := g.Host("cn1")
		h.Go("dies", true, func(ctx verbs.Context) {
			c, err := fusee.Open(g.config(h, ctx), soon(ctx.Runtime()))
			for n := uint64(10); err == nil && n < 30; n++ { // its next object has a greater value than those of the PUT
				err = c.Insert(n, nil, soon(ctx.Runtime()))
			}
			if err != nil {
				t.Error(err)
				return
			}
			dead, stage = c.Number(), 1
			_ = c.Put(key, kv.MakeValue(key, 3, 100), soon(ctx.Runtime()))
		})
		for stage != 3 {
			rt.Sleep(time.Microsecond)
		}
		stage = 4
		g.client("cn2", func(c *fusee.Client, rt verbs.Runtime) error {
			for stage != 5 {
				rt.Sleep(time.Microsecond)
			}
			err := c.Recover(dead, soon(rt))
			if one, two := g.word(1, at), g.word(2, at); one != mine || two != mine {
				t.Errorf("the backups have %#x and %#x, want %#x", one, two, mine)
			}
			g.Host("cn0").ResumeApps()
			return err
		})
		if err := c.Put(key, kv.MakeValue(key, 2, 100), soon(rt)); err != nil || stage != 5 {
			t.Errorf("PUT: %v, stage %d", err, stage)
		}
		for n := range uint64(200) { // the memory of objects that no slot names is used again
			if err := c.Put(other, kv.MakeValue(other, 2+n, 100), soon(rt)); err != nil {
				return err
			}
		}
		v, err := c.Get(key, nil, rt.Now().Add(time.Millisecond))
		if n, bad := kv.CheckValue(key, v); err != nil || bad != nil || n != 2 {
			t.Errorf("GET: %v, value %d, %v", err, n, bad)
		}
		return nil
	})
	g.run()
}
