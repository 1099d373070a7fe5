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
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
)

// values is how many keys the clients of these tests have.
const values = 20

// inserted waits until a master is ready, and inserts the keys.
func inserted(c *fusee.Client, rt verbs.Runtime, ready *bool) error {
	for !*ready {
		rt.Sleep(time.Millisecond)
	}
	for k := range uint64(values) {
		if err := c.Insert(k, kv.MakeValue(k, 1, 100), soon(rt)); err != nil {
			return err
		}
	}
	return nil
}

// put gives the keys their second values.
func put(c *fusee.Client, rt verbs.Runtime) error {
	for k := range uint64(values) {
		if err := c.Put(k, kv.MakeValue(k, 2, 100), soon(rt)); err != nil {
			return err
		}
	}
	return nil
}

// ruled formats the store of a rig, and runs a master on cn3 and a client on cn0. It calls f when the
// client has inserted the keys. ended is what the master has ended with.
func ruled(g *rig, replicas int, f func(c *fusee.Client, rt verbs.Runtime, ended *error) error) {
	g.format(fusee.FormatConfig{Groups: 8, Replicas: replicas, IndexReplicas: min(3, len(g.servers)), Block: 16 << 10})
	var ready bool
	var m *fusee.Master
	var ended error
	g.keep("cn3", begun, &ready, &m, &ended)
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		if err := inserted(c, rt, &ready); err != nil {
			return err
		}
		return f(c, rt, &ended)
	})
	g.run()
}

// prepares reports whether a host sends a CAS that prepares a view without a server.
func prepares(ev *simnet.Event, host string, without int) bool {
	var frame wire.Frame
	if ev.Kind != simnet.Sent || ev.Link() != host || ev.Dir() == fault.Down || wire.ParseFrame(ev.Frame, &frame) != nil || frame.BTH.Opcode != wire.RCCmpSwap {
		return false
	}
	v := layout.View(frame.AtomicETH.SwapOrAdd)
	return v.State() == layout.Preparing && v.Members() > 0 && !v.Has(without)
}

// kept checks that all keys have their n-th values, and that no master has ended.
func kept(t *testing.T, c *fusee.Client, rt verbs.Runtime, n int, what any, ended ...error) {
	t.Helper()
	for _, err := range ended {
		if err != nil {
			t.Errorf("%v: a master has ended: %v", what, err)
		}
	}
	for k := range uint64(values) {
		v, err := c.Get(k, nil, soon(rt))
		if got, wrong := kv.CheckValue(k, v); err != nil || wrong != nil || int(got) != n {
			t.Errorf("%v: key %d has value %d instead of %d: %v %v", what, k, got, n, err, wrong)
			return
		}
	}
}

// A master that begins hangs after it has read the view. Meanwhile the former master settles a view
// without server 2, clients change values, and the former master dies. The new one finds the later
// view when it claims servers, and does not go back to the view that it has read: server 2 lacks the
// changes.
func TestAMasterThatBeginsGoesBackToNoOlderView(t *testing.T) {
	later := 0
	for n := 28; n <= 44; n += 2 {
		var g *rig
		armed, left, hung := false, n, false
		g = newRig(t, 3, simrack.Options{Trace: func(ev *simnet.Event) {
			if !armed || ev.Link() != "cn2" {
				return
			}
			if left--; left == 0 {
				armed, hung = false, true
				g.At(g.Now(), g.Host("cn2").HangAll)
			}
		}})
		g.format(fusee.FormatConfig{Groups: 8, Replicas: 2, IndexReplicas: 3, Block: 16 << 10})
		var former, second bool
		var m, m2 *fusee.Master
		var ended, ended2 error
		g.keep("cn3", begun, &former, &m, &ended)
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			if err := inserted(c, rt, &former); err != nil {
				return err
			}
			armed = true
			g.keep("cn2", begun, &second, &m2, &ended2)
			if rt.Sleep(begun / 2); !hung || second {
				return nil // the begin of a master takes fewer packets
			}
			g.Host("ms2").SetLink(false)
			for end := soon(rt); g.viewAt(0).Has(2) && rt.Now() < end && ended == nil; {
				rt.Sleep(time.Millisecond)
			}
			if g.viewAt(0).Has(2) {
				return nil // the new master has claimed a server: the former one has ended
			}
			later++
			if err := put(c, rt); err != nil {
				return err
			}
			g.Host("cn3").CrashApps()
			g.Host("ms2").SetLink(true)
			g.Host("ms0").SetLink(false)
			g.Host("cn2").ResumeAll()
			rt.Sleep(4 * begun)
			g.Host("ms0").SetLink(true)
			kept(t, c, rt, 2, n, ended2)
			return nil
		})
		g.run()
	}
	if later < 3 {
		t.Errorf("the former master has settled a view in %d runs: choose other packets", later)
	}
}

// A view without server 2, which was silent for a lease, is prepared, and then server 0 loses its
// memory. No client has used the prepared view, so server 2, alive again, is a member once more.
func TestAPreparedViewIsGivenUp(t *testing.T) {
	for _, late := range []time.Duration{0, 5 * time.Microsecond, 100 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond} {
		g := newRig(t, 3, simrack.Options{})
		ruled(g, 2, func(c *fusee.Client, rt verbs.Runtime, ended *error) error {
			g.Host("ms2").SetLink(false)
			for end := soon(rt); g.viewAt(0).Has(2) && rt.Now() < end; {
				rt.Sleep(500 * time.Nanosecond)
			}
			rt.Sleep(late)
			if v := g.viewAt(1); v.State() != layout.Preparing {
				t.Errorf("%v: view %x is not in preparation", late, v)
			}
			g.Host("ms0").Crash()
			g.restart(0)
			g.Host("ms2").SetLink(true)
			rt.Sleep(8 * begun)
			kept(t, c, rt, 1, late, *ended)
			return nil
		})
	}
}

// Server 2 becomes a member again, and the master does not hear that it has the view. Then server 1 is
// silent, and server 0 loses its memory. Clients may use server 2 already, so it remains a member.
func TestAServerThatHasJoinedRemainsAMember(t *testing.T) {
	joined := 0
	for blip := 3500 * time.Nanosecond; blip < 6*time.Microsecond; blip += 500 * time.Nanosecond {
		g := newRig(t, 3, simrack.Options{})
		ruled(g, 2, func(c *fusee.Client, rt verbs.Runtime, ended *error) error {
			g.Host("ms2").Crash()
			if err := put(c, rt); err != nil {
				return err
			}
			rt.Sleep(begun)
			g.restart(2)
			for end := soon(rt); (!g.viewAt(0).Has(2) || g.viewAt(0).State() != layout.Settled) && rt.Now() < end; {
				rt.Sleep(100 * time.Nanosecond)
			}
			rt.Sleep(blip)
			if !g.viewAt(2).Has(2) {
				return nil // it has not got the view, and is lost with server 0
			}
			joined++
			g.Host("ms2").SetLink(false)
			rt.Sleep(50 * time.Millisecond)
			g.Host("ms1").SetLink(false)
			g.Host("ms0").Crash()
			rt.Sleep(80 * time.Millisecond)
			g.Host("ms2").SetLink(true)
			rt.Sleep(3 * begun / 2)
			g.restart(0)
			rt.Sleep(3 * begun / 2)
			g.Host("ms1").SetLink(true)
			rt.Sleep(8 * begun)
			kept(t, c, rt, 2, blip, *ended)
			return nil
		})
	}
	if joined < 2 {
		t.Errorf("server 2 has joined in %d runs: choose other times", joined)
	}
}

// The master gives up a view that its standby knows: servers 0 and 1 without 2, which only server 0
// has. Then a partition leaves servers 1 and 2 to the master, more than half of the view before. But
// server 0 is half of the view that the standby knows, so the master does not go on.
func TestTheStandbyKnowsAViewThatWasGivenUp(t *testing.T) {
	var g *rig
	armed := false
	g = newRig(t, 3, simrack.Options{Trace: func(ev *simnet.Event) {
		if armed && prepares(ev, "cn2", 2) {
			armed = false
			g.At(g.Now(), func() { g.Host("ms1").SetLink(false) })
		}
	}})
	g.format(fusee.FormatConfig{Groups: 8, Replicas: 3, IndexReplicas: 3, Block: 16 << 10})
	x := &throne{g: g, ended: map[string]error{}}
	x.run("cn2", false)
	x.run("cn3", true)
	h := g.Host("cn0")
	h.Go("cut", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		for x.counted == 0 {
			rt.Sleep(time.Millisecond)
		}
		rt.Sleep(2 * reignLease)
		armed = true
		g.Host("ms2").SetLink(false)
		seen := func() bool {
			v := layout.View(g.word(0, layout.SeenWord))
			return v.State() == layout.Preparing && !v.Has(2)
		}
		for end := soon(rt); rt.Now() < end && !seen(); {
			rt.Sleep(100 * time.Microsecond)
		}
		if !seen() || g.viewAt(1).State() == layout.Preparing {
			t.Errorf("the standby does not know the view, or server 1 has it: %x %x", g.word(0, layout.SeenWord), g.viewAt(1))
		}
		x.dial = func(from string, to netip.Addr) bool {
			return from != "cn2" && from != "cn3" || (from == "cn3") == (slices.Index(g.servers, to) == 0)
		}
		g.Host("ms1").SetLink(true)
		g.Host("ms2").SetLink(true)
		x.cut(ctx, h)
		rt.Sleep(8 * time.Second)
		if epochs, goes := x.sides(1); goes != 1 {
			t.Errorf("%d masters have gone on, with views %x", goes, epochs)
		}
	})
	g.run()
}

// A view without server 3 is settled, and clients change values. Then server 2 is silent, and while the
// view without it is prepared, server 0 loses its memory. The master goes back to the settled view,
// and to no view before it: server 3, alive again, lacks the changes.
func TestASettledViewIsNotGivenUp(t *testing.T) {
	for _, late := range []time.Duration{0, 100 * time.Microsecond, 5 * time.Millisecond} {
		g := newRig(t, 4, simrack.Options{})
		ruled(g, 3, func(c *fusee.Client, rt verbs.Runtime, ended *error) error {
			without := func(i int) {
				g.Host(fmt.Sprintf("ms%d", i)).SetLink(false)
				for end := soon(rt); g.viewAt(1).Has(i) && rt.Now() < end; {
					rt.Sleep(500 * time.Nanosecond)
				}
			}
			without(3)
			if err := put(c, rt); err != nil {
				return err
			}
			without(2)
			rt.Sleep(late)
			if v := g.viewAt(1); v.State() != layout.Preparing || v.Has(3) {
				t.Errorf("%v: view %x is not in preparation", late, v)
			}
			g.Host("ms0").Crash()
			g.restart(0)
			g.Host("ms2").SetLink(true)
			g.Host("ms3").SetLink(true)
			for end := soon(rt); (g.viewAt(1).State() != layout.Settled || !g.viewAt(1).Has(2)) && rt.Now() < end; {
				rt.Sleep(10 * time.Microsecond)
			}
			if v := g.viewAt(1); v.Has(3) && !v.Has(0) {
				t.Errorf("%v: server 3 is a member of view %x without having been filled", late, v)
			}
			rt.Sleep(8 * begun)
			kept(t, c, rt, 2, late, *ended)
			return nil
		})
	}
}

// The master is cut off from all servers for some leases. When the first one answers again, the silence
// of the others begins again: the master removes no server that answers a moment later.
func TestSilenceWhileCutOffProvesNothing(t *testing.T) {
	g := newRig(t, 3, simrack.Options{})
	ruled(g, 3, func(c *fusee.Client, rt verbs.Runtime, ended *error) error {
		was := g.viewAt(1)
		g.Host("cn3").SetLink(false)
		rt.Sleep(5 * begun)
		g.Host("ms0").SetLink(false)
		g.Host("ms2").SetLink(false)
		g.Host("cn3").SetLink(true)
		heard := g.word(1, layout.ReignWord)
		for end := soon(rt); g.word(1, layout.ReignWord) == heard && rt.Now() < end; {
			rt.Sleep(10 * time.Microsecond)
		}
		rt.Sleep(begun / 2)
		g.Host("ms0").SetLink(true)
		g.Host("ms2").SetLink(true)
		rt.Sleep(4 * begun)
		if v := g.viewAt(1); v.Members() != 3 || v.Epoch() > was.Epoch()+1 {
			t.Errorf("view %x became %x", was, v)
		}
		kept(t, c, rt, 1, "cut off", *ended)
		return nil
	})
}

// The master is cut off while it prepares a view without server 2, and server 0 loses its memory.
// Server 2 is alive again, so nothing is lost.
func TestCutOffWhileAViewIsPrepared(t *testing.T) {
	for _, late := range []time.Duration{0, 5 * time.Millisecond} {
		var g *rig
		armed, hit := false, false
		g = newRig(t, 3, simrack.Options{Trace: func(ev *simnet.Event) {
			if armed && prepares(ev, "cn3", 2) {
				armed, hit = false, true
				g.At(g.Now().Add(late), func() { g.Host("cn3").SetLink(false) })
			}
		}})
		ruled(g, 2, func(c *fusee.Client, rt verbs.Runtime, ended *error) error {
			armed = true
			g.Host("ms2").SetLink(false)
			for end := soon(rt); !hit && rt.Now() < end; {
				rt.Sleep(100 * time.Microsecond)
			}
			rt.Sleep(late + time.Millisecond)
			g.Host("ms0").Crash()
			g.restart(0)
			g.Host("ms2").SetLink(true)
			rt.Sleep(7 * begun)
			g.Host("cn3").SetLink(true)
			rt.Sleep(8 * begun)
			kept(t, c, rt, 1, late, *ended)
			return nil
		})
	}
}

// The NIC of server 0 restarts with its memory while the master is cut off for a moment. Clients accept
// the new incarnation only with a later view, so the master makes one.
func TestANICRestartsWhileTheMasterIsCutOff(t *testing.T) {
	for cut := 150 * time.Millisecond; cut < 700*time.Millisecond; cut += 45 * time.Millisecond {
		g := newRig(t, 3, simrack.Options{})
		var owners [3]memservice.Owners
		for i := range owners {
			h := g.Host(fmt.Sprintf("ms%d", i))
			h.Crash()
			h.Restart()
			g.serveKept(i, &owners[i])
		}
		ruled(g, 2, func(c *fusee.Client, rt verbs.Runtime, ended *error) error {
			was := g.viewAt(1)
			g.Host("cn3").SetLink(false)
			rt.Sleep(10 * time.Millisecond)
			g.Host("ms0").Crash()
			rt.Sleep(5 * time.Millisecond)
			g.Host("ms0").Restart()
			g.serveKept(0, &owners[0])
			rt.Sleep(cut - 15*time.Millisecond)
			g.Host("cn3").SetLink(true)
			rt.Sleep(20 * begun)
			if v := g.viewAt(1); v.Epoch() == was.Epoch() || v.State() != layout.Settled {
				t.Errorf("cut off for %v: view %x became %x", cut, was, v)
			}
			kept(t, c, rt, 1, cut, *ended)
			return nil
		})
	}
}

// A server has crashed, and the link of the other one or of the master goes down and up all the time.
// The master removes the crashed server nevertheless.
func TestAServerCrashesWhileLinksFlap(t *testing.T) {
	for _, host := range []string{"cn3", "ms0"} {
		for _, period := range []time.Duration{150 * time.Millisecond, 300 * time.Millisecond, 800 * time.Millisecond} {
			g := newRig(t, 2, simrack.Options{})
			ruled(g, 2, func(c *fusee.Client, rt verbs.Runtime, _ *error) error {
				g.Host("ms1").Crash()
				end := rt.Now().Add(60 * begun)
				for rt.Now() < end && (g.viewAt(0).Has(1) || g.viewAt(0).State() != layout.Settled) {
					g.Host(host).SetLink(false)
					rt.Sleep(period / 2)
					g.Host(host).SetLink(true)
					rt.Sleep(period / 2)
				}
				if rt.Now() >= end {
					t.Errorf("%s flaps with a period of %v: view %x", host, period, g.viewAt(0))
				}
				return nil
			})
		}
	}
}

// The view of servers 1 and 2 is prepared and given up, and server 0 alone goes on. Servers 1 and 2
// answer again, with a view that has no member in common: the master that has written it fills them.
func TestServersOfAViewThatWasGivenUpComeBack(t *testing.T) {
	g := newRig(t, 3, simrack.Options{})
	ruled(g, 3, func(c *fusee.Client, rt verbs.Runtime, ended *error) error {
		g.Host("ms0").SetLink(false)
		for end := soon(rt); g.viewAt(1).Has(0) && rt.Now() < end; {
			rt.Sleep(500 * time.Nanosecond)
		}
		rt.Sleep(5 * time.Millisecond)
		g.Host("ms1").SetLink(false)
		g.Host("ms2").SetLink(false)
		g.Host("ms0").SetLink(true)
		rt.Sleep(20 * begun)
		if v := g.viewAt(0); v.Members() != 1 || v.State() != layout.Settled || *ended != nil {
			t.Errorf("server 0 has view %x, the master %v", v, *ended)
		}
		g.Host("ms1").SetLink(true)
		g.Host("ms2").SetLink(true)
		rt.Sleep(60 * begun)
		if v := g.viewAt(0); v.Members() != 3 {
			t.Errorf("view %x: servers 1 and 2 are not members again", v)
		}
		kept(t, c, rt, 1, "given up", *ended)
		return nil
	})
}

// Both halves of a divided network start a master by hand, and both get the same number. When the
// network is whole again, each finds its own number on the other's server, and clears nothing there.
func TestMastersWithOneNumberClearNothing(t *testing.T) {
	g := newRig(t, 2, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 8, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
	x := &throne{g: g, ended: map[string]error{}}
	x.run("cn2", false)
	h := g.Host("cn0")
	h.Go("divide", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		for !x.ready {
			rt.Sleep(time.Millisecond)
		}
		rt.Sleep(5 * reignLease)
		g.Host("cn2").CrashApps()
		x.dial = func(from string, to netip.Addr) bool { return (from == "cn2") == (slices.Index(g.servers, to) == 0) }
		x.run("cn2", false)
		x.run("cn3", false)
		rt.Sleep(3 * time.Second)
		was := [...]layout.View{g.viewAt(0), g.viewAt(1)}
		if one, other := g.word(0, layout.MasterWord), g.word(1, layout.MasterWord); one != other || was[0].Has(1) || was[1].Has(0) {
			t.Errorf("masters %d and %d, views %x: the network is not divided", one, other, was)
		}
		x.dial = nil
		rt.Sleep(4 * time.Second)
		if now := [...]layout.View{g.viewAt(0), g.viewAt(1)}; now != was {
			t.Errorf("views %x became %x", was, now)
		}
	})
	g.run()
}

// A standby takes charge while server 1 is down, and server 0 loses its memory in the middle of the
// change. Server 1 comes back with its memory: it has the view from before the change, and is used.
func TestAServerThatWasDownHasTheMemory(t *testing.T) {
	var g *rig
	armed, hit := false, false
	var owners memservice.Owners
	g = newRig(t, 2, simrack.Options{Trace: func(ev *simnet.Event) {
		if armed && prepares(ev, "cn3", 1) {
			armed, hit = false, true
			g.At(g.Now().Add(3*time.Millisecond), func() {
				g.Host("ms0").Crash()
				g.Host("ms1").Restart()
				g.serveKept(1, &owners)
			})
		}
	}})
	g.Host("ms1").Crash()
	g.Host("ms1").Restart()
	g.serveKept(1, &owners)
	g.format(fusee.FormatConfig{Groups: 8, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
	x := &throne{g: g, ended: map[string]error{}}
	x.run("cn2", false)
	x.run("cn3", true)
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		counted := false
		for !counted {
			rt.Sleep(time.Millisecond)
			counted = x.counted != 0
		}
		if err := inserted(c, rt, &counted); err != nil {
			return err
		}
		rt.Sleep(5 * reignLease)
		armed = true
		g.Host("cn2").CrashApps()
		g.Host("ms1").Crash()
		rt.Sleep(3 * time.Second)
		g.restart(0)
		rt.Sleep(10 * time.Second)
		if !hit || len(x.reigns) != 2 {
			t.Errorf("the standby's change was reached: %v, reigns %v", hit, x.reigns)
		}
		kept(t, c, rt, 1, "server 1")
		return nil
	})
	g.run()
}
