package fusee_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The network is divided: each of two masters has one server and removes the other one, and a client writes
// by the second. When the network is whole again, neither that master nor one that is started by hand later
// clears the memory that has the client's value. The second master goes on: the first one's views are no
// proof that it was deposed.
func TestMemoryOfADividedStoreIsKept(t *testing.T) {
	x := newThrone(t, 2, 2)
	g := x.g
	h := g.Host("cn0")
	h.Go("client", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		for x.counted == 0 {
			rt.Sleep(time.Millisecond)
		}
		cfg := g.config(h, ctx)
		cfg.Manager = &cutManager{cfg.Manager, x, "cn0", rt}
		c, err := fusee.Open(cfg, soon(rt))
		if err != nil {
			t.Error(err)
			return
		}
		if err := c.Insert(1, []byte("hello"), soon(rt)); err != nil {
			t.Error(err)
		}
		rt.Sleep(300 * time.Millisecond)
		x.dial = func(from string, to netip.Addr) bool {
			return from == "cn2" == (slices.Index(g.servers, to) < 1)
		}
		x.cut(ctx, h)
		rt.Sleep(2 * time.Second)
		if err := c.Put(1, []byte("world"), soon(rt)); err != nil {
			t.Error(err)
		}
		rt.Sleep(10 * time.Second)
		x.dial = nil
		before := g.viewAt(1)
		rt.Sleep(3 * time.Second)
		beat := g.word(1, layout.ReignWord)
		rt.Sleep(2 * time.Second)
		if v := g.viewAt(1); v != before || v.Has(0) || g.word(1, layout.ReignWord) == beat {
			t.Errorf("ms1 has the view %x, and %x 5 s later; the master is at beat %x, and %x 2 s later", before, v, beat, g.word(1, layout.ReignWord))
		}
		g.Host("cn2").CrashApps()
		g.Host("cn3").CrashApps()
		x.run("cn1", false)
		rt.Sleep(5 * time.Second)
		if v := g.viewAt(1); v != before {
			t.Errorf("after a start by hand ms1 has the view %x, %x before", v, before)
		}
		_ = c.Close()
	})
	g.run()
}

// A client settles a block of a dead one while a server crashes and the master is hung: its attempt to follow
// the change of the view times out. The block stays the client's to settle, so the dead client's key can be
// inserted afterwards.
func TestAnEstateOutlivesAChangeThatTimesOut(t *testing.T) {
	var g *rig
	var frame wire.Frame
	const (
		begins = iota + 1
		dies
		dead
		inherits
		crashed
	)
	stage, other := 0, -1
	var armed clock.Time
	g = newRigOf(t, 2, large, simrack.Options{Trace: func(ev *simnet.Event) {
		if ev.Kind != simnet.Sent || ev.Dir() != fault.Up || wire.ParseFrame(ev.Frame, &frame) != nil {
			return
		}
		switch {
		case stage == dies && ev.Link() == "cn1" && frame.BTH.Opcode == wire.RCWriteOnly && frame.RETH.Length == 1:
			stage = dead
			g.At(g.Now(), g.Host("cn1").Crash)
		case stage == inherits && ev.Link() == "cn0" && frame.BTH.Opcode == wire.RCCmpSwap && g.Now() > armed:
			stage = crashed
			g.At(g.Now(), g.Host(fmt.Sprintf("ms%d", other)).Crash)
		}
	}})
	g.format(fusee.FormatConfig{Groups: 8, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
	ready := false
	var m *fusee.Master
	var ended error
	g.keep("cn3", 200*time.Millisecond, &ready, &m, &ended)
	until := func(rt verbs.Runtime, least int) {
		for stage < least {
			rt.Sleep(time.Millisecond)
		}
	}
	g.Host("cn1").Go("client", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		until(rt, begins)
		c, err := fusee.Open(g.config(g.Host("cn1"), ctx), soon(rt))
		if err == nil {
			err = c.Insert(5, value(5, 900), soon(rt))
		}
		if err != nil {
			t.Error(err)
			return
		}
		stage = dies
		_ = c.Insert(7, value(7, 900), rt.Now().Add(time.Second))
	})
	g.Host("cn2").Go("watch", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		for end := rt.Now().Add(30 * time.Second); rt.Now() < end; rt.Sleep(100 * time.Microsecond) {
			if stage == crashed && g.viewAt(1-other).State() == layout.Preparing {
				g.Host("cn3").HangAll()
				rt.Sleep(3 * time.Second)
				g.Host("cn3").ResumeAll()
				return
			}
		}
	})
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		for !ready {
			rt.Sleep(time.Millisecond)
		}
		if err := c.Insert(1, value(1, 100), soon(rt)); err != nil {
			return err
		}
		if err := c.Insert(2, value(2, 900), soon(rt)); err != nil {
			return err
		}
		at, err := g.slotOf(c.Super(), 2)
		if err != nil {
			return err
		}
		victim := g.slotValue(c.Super(), at).Server
		other = 1 - victim
		g.Host(fmt.Sprintf("ms%d", victim)).Crash()
		if err := c.Put(1, value(1, 100), soon(rt)); err != nil {
			return err
		}
		g.restart(victim)
		if err := g.all(rt); err != nil {
			return err
		}
		if err := c.Put(1, value(1, 100), soon(rt)); err != nil {
			return err
		}
		stage = begins
		until(rt, dead)
		rt.Sleep(10 * time.Millisecond)
		if err := c.Insert(8, value(8, 900), soon(rt)); err != nil {
			return err
		}
		stage, armed = inherits, rt.Now().Add(490*time.Millisecond)
		first := c.Insert(7, value(7, 900), rt.Now().Add(800*time.Millisecond))
		if stage != crashed {
			t.Errorf("no server has crashed while the client settles the block: %v", first)
			return nil
		}
		for end := rt.Now().Add(4 * time.Second); rt.Now() < end; rt.Sleep(100 * time.Microsecond) {
			_, _ = c.Get(1, nil, rt.Now().Add(300*time.Millisecond)) // waits for the master
		}
		rt.Sleep(2 * time.Second)
		if err := c.Insert(7, value(7, 900), rt.Now().Add(8*time.Second)); err != nil {
			t.Errorf("INSERT of the dead client's key: %v; the first one: %v; master %v", err, first, ended)
		}
		return nil
	})
	g.run()
}
