package sherman_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A tree whose pages have their lock words: a client dies with the lock of one page. The lock is
// listed, clients of other pages do not wait, and after the lease the page is written again.
func TestPagesHaveTheirLocks(t *testing.T) {
	g := newRig(t, simrack.Options{}, region)
	g.format(sherman.FormatConfig{Shape: layout.Shape{Kind: layout.Checksummed, Page: 256}, PageLocks: true})
	const keys, victim, lease = 60, 31, 20 * time.Millisecond
	died := false
	h := g.Host("cn0")
	h.Go("victim", false, func(ctx verbs.Context) {
		rt, armed := ctx.Runtime(), false
		dying := func(wrs []verbs.SendWR) []verbs.SendWR {
			if armed && wrs[0].Op == verbs.OpWrite {
				died = true
				h.Crash()
				rt.Sleep(time.Millisecond)
			}
			return wrs
		}
		c, err := g.node(sherman.NodeConfig{}).Open(sherman.Config{Context: bent{ctx, dying}, Manager: h.Manager(ctx)}, soon(rt))
		for k := uint64(0); k < keys && err == nil; k++ {
			err = c.Insert(k, value(k, 0), soon(rt))
		}
		if armed = true; err != nil {
			t.Error(err)
		}
		_ = c.Put(victim, value(victim, 1), soon(rt))
	})
	n := g.node(sherman.NodeConfig{Lease: lease})
	g.client("cn1", n, func(c *sherman.Client, rt verbs.Runtime) error {
		for ; !died; rt.Sleep(time.Microsecond) {
		}
		held := 0
		for server := range c.Super().Servers {
			list, err := c.Locks(server, soon(rt))
			if err != nil {
				return err
			}
			for i := range list {
				var p layout.Page
				b := make([]byte, c.Super().Shape.Page)
				if err := c.ReadPage(layout.At(server, uint64(list[i].Index*len(b))), b, soon(rt)); err != nil {
					return err
				}
				if err := p.Parse(c.Super().Shape, b); err != nil || !p.Covers(victim) || p.Level != 0 || layout.TagOf(b[len(b)-layout.LockLen:]) != list[i].Tag {
					return fmt.Errorf("lock %d of server %d: %+v, %w", list[i].Index, server, p.Header, err)
				}
				held++
			}
		}
		if held != 1 {
			return fmt.Errorf("%d locks are held", held)
		}
		began := rt.Now()
		for _, k := range []uint64{0, keys - 1} {
			if err := c.Put(k, value(k, 2), soon(rt)); err != nil {
				return err
			}
		}
		if took := rt.Now().Sub(began); took >= lease {
			return fmt.Errorf("writes to other pages took %v", took)
		}
		if err := c.Put(victim, value(victim, 2), soon(rt)); err != nil {
			return err
		}
		for k := range uint64(keys) {
			if _, err := c.Get(k, nil, soon(rt)); err != nil {
				return fmt.Errorf("key %d: %w", k, err)
			}
		}
		_, err := whole(c, rt, 0)
		return err
	})
	g.run()
	if n.Stats().Recovered != 1 {
		t.Errorf("%d locks were taken over", n.Stats().Recovered)
	}
}
