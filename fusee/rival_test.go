package fusee_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// A client waits for an INSERT or PUT of a dead client, and takes that one for dead. A memory
// server crashes about the time at which the client has the servers end the connections of the dead
// one. The operation goes on when the master has removed the server, and does not wait until its
// deadline; nor does it end before that.
func TestAServerCrashesWhileAClientEndsADeadOne(t *testing.T) {
	const lease = 10 * time.Millisecond
	for victim := range 3 {
		for _, op := range []string{"INSERT", "PUT"} {
			for late := lease - 200*time.Microsecond; late < lease+800*time.Microsecond; late += 100 * time.Microsecond {
				const key = 1 << 30
				g := newRig(t, 3, simrack.Options{})
				g.format(fusee.FormatConfig{Groups: 80, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
				g.lease = lease
				ready, dead := false, false
				g.master("cn3", &ready)
				h := g.Host("cn1")
				h.Go("dies", true, func(ctx verbs.Context) {
					rt := ctx.Runtime()
					for !ready {
						rt.Sleep(time.Millisecond)
					}
					c, err := fusee.Open(g.config(h, ctx), soon(rt))
					if err == nil {
						err = c.Insert(2, kv.MakeValue(2, 1, 100), soon(rt))
					}
					if err == nil && op == "PUT" {
						err = c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt))
					}
					if err != nil {
						t.Error(err)
						return
					}
					super := c.Super()
					kill := func() { dead = true; h.CrashApps() }
					if op == "INSERT" {
						before := len(g.slots(super, 0))
						g.until(func() bool { return len(g.slots(super, 0)) > before }, kill)
						_ = c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt))
						return
					}
					at, err := g.slotOf(super, key)
					if err != nil {
						t.Error(err)
					}
					was := g.word(1, at)
					g.until(func() bool { return g.word(1, at) != was }, kill) // it has the backup, and not the primary
					_ = c.Put(key, kv.MakeValue(key, 2, 100), soon(rt))
				})
				g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
					for !ready {
						rt.Sleep(time.Millisecond)
					}
					if err := c.Insert(3, nil, soon(rt)); err != nil { // it has a block and connections
						return err
					}
					for !dead {
						rt.Sleep(time.Microsecond)
					}
					g.At(rt.Now().Add(late), func() { g.Host(fmt.Sprintf("ms%d", victim)).Crash() })
					began := rt.Now()
					var err error
					if op == "INSERT" {
						err = c.Insert(key, kv.MakeValue(key, 3, 100), rt.Now().Add(4*time.Second))
					} else {
						err = c.Put(key, kv.MakeValue(key, 3, 100), rt.Now().Add(4*time.Second))
					}
					if err != nil || rt.Now().Sub(began) > 3*time.Second {
						t.Errorf("ms%d crashes after %v: %s after %v: %v", victim, late, op, rt.Now().Sub(began), err)
					}
					return nil
				})
				g.run()
			}
		}
	}
}
