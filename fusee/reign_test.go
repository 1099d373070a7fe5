package fusee_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// A client waits for longer than its lease for an INSERT of a dead client, while the master settles that one's
// blocks: the master goes on, and then the client does. So does one that recovers all others meanwhile. If the
// master dies, the client takes it for dead after some time.
func TestAClientThatWaitsForTheMasterDoesNotEndIt(t *testing.T) {
	for _, what := range []string{"INSERT", "RecoverAll", "the master dies"} {
		const key = 1 << 30
		g := newRigOf(t, 3, 4<<20, simrack.Options{Delay: 50 * time.Microsecond})
		g.format(fusee.FormatConfig{Groups: 80, Replicas: 2, IndexReplicas: 2, Block: 256 << 10})
		g.lease, g.patience = 10*time.Millisecond, 200*time.Millisecond
		ready, dead := false, uint32(0)
		var m *fusee.Master
		var ended error
		h := g.Host("cn3")
		h.Go("master", true, func(ctx verbs.Context) {
			cfg := g.config(h, ctx)
			cfg.Lease, cfg.ClientLease = 100*time.Millisecond, time.Second
			var err error
			m, err = fusee.OpenMaster(cfg, soon(ctx.Runtime()))
			if ready = true; err == nil {
				err = m.Run()
			}
			ended = err
		})
		victim := g.Host("cn1")
		var super layout.Superblock
		victim.Go("dies", true, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			for !ready {
				rt.Sleep(time.Millisecond)
			}
			c, err := fusee.Open(g.config(victim, ctx), soon(rt))
			for n := uint64(0); n < 400 && err == nil; n++ {
				err = c.Insert(n, kv.MakeValue(n, 1, 100), soon(rt))
			}
			if err != nil {
				t.Error(err)
				return
			}
			super, dead = c.Super(), c.Number()
			before := len(g.slots(super, 0))
			g.until(func() bool { return len(g.slots(super, 0)) > before }, victim.CrashApps) // its object is pending
			_ = c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt))
		})
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			owned := func(number uint32) bool {
				for server := range 3 {
					for n := range super.Shape.Blocks {
						if layout.BlockUse(g.word(server, super.Shape.BlockTable(0)+8*uint64(n))).Client() == number {
							return true
						}
					}
				}
				return false
			}
			for !ready {
				rt.Sleep(time.Millisecond)
			}
			if err := c.Insert(1<<31, nil, soon(rt)); err != nil { // it has its block, and new connections
				return err
			}
			for dead == 0 || owned(dead) {
				rt.Sleep(time.Millisecond)
			}
			if master := uint32(g.word(0, layout.MasterWord)); !owned(master) {
				return fmt.Errorf("the blocks of client %d are settled already", dead)
			}
			began := rt.Now()
			switch what {
			case "RecoverAll":
				if owners, err := c.RecoverAll(soon(rt)); err != nil || len(owners) > 0 {
					return fmt.Errorf("recovered %d: %w", owners, err)
				}
			case "the master dies":
				h.CrashApps()
			}
			if err := c.Insert(key, kv.MakeValue(key, 2, 100), soon(rt)); err != nil {
				return err
			}
			if waited := rt.Now().Sub(began); waited < 3*g.patience/2 {
				t.Errorf("%s: the client has waited for %v alone", what, waited)
			}
			rt.Sleep(3 * time.Second)
			if ended != nil {
				t.Errorf("the master has ended: %v", ended)
			}
			return nil
		})
		g.run()
		g.audit(super, "after it")
	}
}

// until calls then as soon as a condition of the memory is true.
func (g *rig) until(cond func() bool, then func()) {
	var look func()
	look = func() {
		if cond() {
			then()
			return
		}
		g.At(g.Now().Add(time.Microsecond), look)
	}
	g.At(g.Now(), look)
}
