package fusee_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/topo/simrack"
)

// The master recovers a client that has died, although no other waits for it; a client that works keeps
// its number, unless a memory server crashes; one that is idle for longer than its lease loses its number and no operation.
func TestTheMasterRecoversDeadClients(t *testing.T) {
	for _, kill := range []string{"applications", "NIC"} {
		g := newRig(t, 3, simrack.Options{})
		g.format(fusee.FormatConfig{Groups: 8, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
		ready, done := false, false
		g.master("cn3", &ready)
		var dead uint32
		h := g.Host("cn1")
		h.Go("dies", true, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			for !ready {
				rt.Sleep(time.Millisecond)
			}
			c, err := fusee.Open(g.config(h, ctx), soon(rt))
			for n := uint64(100); err == nil; n++ {
				dead = c.Number()
				if err = c.Insert(n, kv.MakeValue(n, 1, 100), soon(rt)); n == 120 && err == nil {
					g.At(g.Now().Add(5*time.Microsecond), func() { // in the middle of the next operation
						if kill == "NIC" {
							h.Crash()
						} else {
							h.CrashApps()
						}
					})
				}
			}
		})
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error { // works
			for !ready {
				rt.Sleep(time.Millisecond)
			}
			number := c.Number()
			for n := uint64(1 << 30); !done; n++ {
				err := c.Insert(n, kv.MakeValue(n, 1, 100), soon(rt))
				if err = errors.Join(err, c.Delete(n, soon(rt))); err != nil {
					return err
				}
				rt.Sleep(20 * time.Millisecond)
			}
			if c.Number() != number && kill != "NIC" {
				t.Errorf("the client that works had the number %d, and has %d", number, c.Number())
			}
			return nil
		})
		g.client("cn2", func(c *fusee.Client, rt verbs.Runtime) error { // is idle
			for !ready {
				rt.Sleep(time.Millisecond)
			}
			defer func() { done = true }()
			if err := c.Insert(1<<20, kv.MakeValue(1<<20, 1, 100), soon(rt)); err != nil {
				return err
			}
			number := c.Number()
			if kill == "NIC" {
				g.Host("ms1").Crash()
			}
			rt.Sleep(8 * time.Second)
			if _, err := c.Get(1<<20, nil, soon(rt)); err != nil {
				return fmt.Errorf("idle, then GET: %w", err)
			}
			out, err := c.Audit(soon(rt))
			if err != nil || out.Owners[dead] != 0 || dead == 0 || out.Keys < 21 {
				return fmt.Errorf("%s: after 8 s: %+v, %w; want no blocks of client %d", kill, out, err, dead)
			}
			if err := errors.Join(c.Put(1<<20, kv.MakeValue(1<<20, 2, 100), soon(rt)), c.Insert(2<<20, nil, soon(rt))); err != nil {
				return fmt.Errorf("idle, then: %w", err)
			}
			if c.Number() == number {
				t.Errorf("the idle client has its number yet")
			}
			return nil
		})
		g.run()
	}
}
