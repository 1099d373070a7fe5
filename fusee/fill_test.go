package fusee_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/wire"

	"github.com/rdmalab/rdmalab/sim/simnet"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// all waits until all servers are members of a settled view.
func (g *rig) all(rt verbs.Runtime) error {
	for end := soon(rt); rt.Now() < end; rt.Sleep(time.Millisecond) {
		v, same := g.viewAt(0), true
		for i := range g.servers {
			same = same && g.viewAt(i) == v && v.Has(i)
		}
		if same && v.State() == layout.Settled {
			return nil
		}
	}
	var views []layout.View
	for i := range g.servers {
		views = append(views, g.viewAt(i))
	}
	return fmt.Errorf("not all servers are members again: views %x", views)
}

// Each server crashes and comes back with an empty memory, one after the other, several times, while a client
// works. It is filled, and what was acknowledged is there, also in the end, when only one server remains that
// has never been a member from the beginning.
func TestAServerThatComesBackIsUsedAgain(t *testing.T) {
	for r := 2; r <= 3; r++ {
		g := newRigOf(t, 3, large, simrack.Options{})
		g.format(fusee.FormatConfig{Groups: 16, Replicas: r, IndexReplicas: r, Block: 16 << 10})
		ready := false
		g.master("cn3", &ready)
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			for !ready {
				rt.Sleep(time.Millisecond)
			}
			n := uint64(0)
			work := func() error {
				for range 15 {
					if err := c.Insert(n, kv.MakeValue(n, 1, 100), soon(rt)); err != nil {
						return fmt.Errorf("%d replicas, insert %d: %w", r, n, err)
					}
					if err := c.Put(n/2, kv.MakeValue(n/2, n+2, 100), soon(rt)); err != nil {
						return fmt.Errorf("%d replicas, put %d: %w", r, n, err)
					}
					n++
				}
				return nil
			}
			for round := range 7 {
				if err := work(); err != nil {
					return err
				}
				victim := round % 3
				g.Host(fmt.Sprintf("ms%d", victim)).Crash()
				if err := work(); err != nil {
					return err
				}
				g.restart(victim)
				if err := g.all(rt); err != nil {
					return fmt.Errorf("round %d: %w", round, err)
				}
				report, err := c.Audit(soon(rt))
				if err != nil || len(report.Defects) > 0 || report.Keys != int(n) || len(report.Members) != 3 {
					t.Errorf("%d replicas, round %d: %+v, %v, want %d keys", r, round, report, err, n)
				}
			}
			for k := range n {
				if _, err := c.Get(k, nil, soon(rt)); err != nil {
					return fmt.Errorf("%d replicas, get %d: %w", r, k, err)
				}
			}
			return nil
		})
		g.run()
	}
}

// value is the value of a key.
func value(key uint64, n int) []byte { return kv.MakeValue(key, 1, n) }

// A client that was hung while the server of its blocks crashed, came back and was filled uses these blocks no
// more: they have another owner.
func TestAClientThatMissedTheFillLosesItsBlocks(t *testing.T) {
	g := newRigOf(t, 2, large, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 32, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
	ready, stage := false, 0
	var m *fusee.Master
	var ended error
	g.keep("cn3", 100*time.Millisecond, &ready, &m, &ended)
	var super layout.Superblock
	g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
		for !ready {
			rt.Sleep(time.Millisecond)
		}
		super = c.Super()
		for k := range uint64(10) {
			if err := c.Insert(k, value(k, 100), soon(rt)); err != nil {
				return err
			}
		}
		for stage = 1; stage < 2; {
			rt.Sleep(time.Millisecond)
		}
		for k := uint64(100); k < 120; k++ {
			if err := c.Insert(k, value(k, 100), soon(rt)); err != nil {
				return fmt.Errorf("insert %d after the fill: %w", k, err)
			}
		}
		stage = 3
		return nil
	})
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		for stage < 1 {
			rt.Sleep(time.Millisecond)
		}
		for i := range 2 {
			ms := g.Host(fmt.Sprintf("ms%d", i))
			ms.Crash()
			rt.Sleep(time.Second)
			g.restart(i)
			if err := g.all(rt); err != nil {
				return err
			}
		}
		for k := uint64(200); k < 240; k++ {
			if err := c.Insert(k, value(k, 100), soon(rt)); err != nil {
				return fmt.Errorf("insert %d: %w", k, err)
			}
		}
		for stage = 2; stage < 3; {
			rt.Sleep(time.Millisecond)
		}
		for k := range uint64(240) {
			if k >= 10 && k < 100 || k >= 120 && k < 200 {
				continue
			}
			if v, err := c.Get(k, nil, soon(rt)); err != nil || string(v) != string(value(k, 100)) {
				t.Errorf("GET %d: %q, %v", k, v, err)
			}
		}
		return nil
	})
	g.run()
	if ended != nil {
		t.Error("master:", ended)
	}
	g.audit(super, "in the end")
}

// A client that knows one member alone finds the store elsewhere when that one has crashed, after another
// server was filled meanwhile.
func TestAClientAsksServersThatWereNoMembers(t *testing.T) {
	g := newRigOf(t, 2, large, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 8, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
	ready := false
	g.master("cn3", &ready)
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		for !ready {
			rt.Sleep(time.Millisecond)
		}
		for i := range 4 {
			victim := i % 2
			g.Host(fmt.Sprintf("ms%d", victim)).Crash()
			key := uint64(i)
			if err := c.Insert(key, value(key, 100), soon(rt)); err != nil { // now the client knows the other server alone
				return fmt.Errorf("round %d: %w", i, err)
			}
			g.restart(victim)
			if err := g.all(rt); err != nil {
				return err
			}
		}
		for k := range uint64(4) {
			if v, err := c.Get(k, nil, soon(rt)); err != nil || string(v) != string(value(k, 100)) {
				t.Errorf("GET %d: %q, %v", k, v, err)
			}
		}
		return nil
	})
	g.run()
}

// A server that crashes each time while it is filled stops the clients more and more seldom. When it does not
// crash any more, it becomes a member.
func TestAServerThatFailsLateStopsClientsSeldom(t *testing.T) {
	g := newRigOf(t, 3, large, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 8, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
	ready, failing := false, true
	g.master("cn3", &ready)
	fills := 0
	g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error { // crashes the server
		for !ready {
			rt.Sleep(time.Millisecond)
		}
		g.Host("ms2").Crash()
		rt.Sleep(500 * time.Millisecond)
		g.restart(2)
		for ; failing; rt.Sleep(20 * time.Microsecond) {
			if g.memory[2][0] != 0 { // the superblock is written by the fill
				fills++
				g.Host("ms2").Crash()
				rt.Sleep(10 * time.Millisecond)
				g.restart(2)
			}
		}
		return nil
	})
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		for !ready {
			rt.Sleep(time.Millisecond)
		}
		for end, k := rt.Now().Add(20*time.Second), uint64(0); rt.Now() < end; k++ {
			rt.Sleep(50 * time.Millisecond)
			if _, err := c.Get(k, nil, soon(rt)); !errors.Is(err, kv.ErrNotFound) {
				return err
			}
		}
		failing = false
		if fills < 4 || fills > 10 {
			t.Errorf("in 20 s the server was filled %d times, want 4 to 10", fills)
		}
		rt.Sleep(26 * time.Second)
		return g.all(rt)
	})
	g.run()
}

// A master that is hung while it greets a server that has come back, and goes on when its successor fills that
// server or has filled it, claims nothing and ends.
func TestADeposedMasterClaimsNothing(t *testing.T) {
	for n := 1; n <= 40 && !t.Failed(); n++ {
		var g *rig
		armed, hung, left := false, false, 1+n/2
		g = newRigOf(t, 3, large, simrack.Options{Trace: func(ev *simnet.Event) {
			if armed && ev.Kind == simnet.Sent && ev.Link() == "ms2" {
				if left--; left == 0 {
					armed, hung = false, true
					g.At(g.Now(), g.Host("cn3").HangAll)
				}
			}
		}})
		g.format(fusee.FormatConfig{Groups: 8, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
		var ready, ready2 bool
		var m, m2 *fusee.Master
		var ended, ended2 error
		g.keep("cn3", 4*time.Second, &ready, &m, &ended)
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			for !ready {
				rt.Sleep(time.Millisecond)
			}
			if err := c.Insert(1, []byte("hello"), soon(rt)); err != nil {
				return err
			}
			g.Host("ms2").Crash()
			if err := c.Put(1, []byte("world"), soon(rt)); err != nil {
				return err
			}
			rt.Sleep(time.Second)
			g.restart(2)
			for armed = true; !hung && !g.viewAt(2).Has(2); {
				rt.Sleep(time.Millisecond)
			}
			if armed = false; !hung {
				return nil // the server was filled with fewer packets
			}
			g.keep("cn2", 100*time.Millisecond, &ready2, &m2, &ended2)
			for !ready2 {
				rt.Sleep(time.Millisecond)
			}
			rt.Sleep(time.Duration(n%2) * 20 * time.Millisecond)
			g.Host("cn3").ResumeAll()
			err := g.all(rt)
			for end := rt.Now().Add(15 * time.Second); ended == nil && rt.Now() < end; {
				rt.Sleep(time.Millisecond)
			}
			if v, gone := c.Get(1, nil, soon(rt)); err != nil || gone != nil || string(v) != "world" {
				t.Errorf("packet %d: %v; GET %q, %v", n, err, v, gone)
			}
			if ended2 != nil || !errors.Is(ended, fusee.ErrDeposed) {
				t.Errorf("packet %d: the former master has ended with %v, its successor with %v", n, ended, ended2)
			}
			for i := range 3 {
				if a, b := g.word(i, layout.MasterWord), g.word(0, layout.MasterWord); a != b {
					t.Errorf("packet %d: ms%d has the master %d, ms0 %d", n, i, a, b)
				}
			}
			return nil
		})
		g.run()
	}
}

// A master does not touch a server that a master with a larger number has claimed. It goes on: only the
// members can depose it.
func TestAMasterLeavesAServerOfAnother(t *testing.T) {
	g := newRigOf(t, 3, large, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 8, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
	ready := false
	var m *fusee.Master
	var ended error
	g.keep("cn3", 100*time.Millisecond, &ready, &m, &ended)
	g.client("cn0", func(_ *fusee.Client, rt verbs.Runtime) error {
		for !ready {
			rt.Sleep(time.Millisecond)
		}
		g.Host("ms2").Crash()
		rt.Sleep(time.Second)
		const later = 1 << 20
		g.restart(2)
		g.poke(2, layout.MasterWord, later)
		rt.Sleep(2 * time.Second)
		if n := g.word(2, layout.MasterWord); n != later || ended != nil {
			t.Errorf("the server has the master %d, and the other one ended with %v", n, ended)
		}
		before := g.word(0, layout.ReignWord)
		rt.Sleep(time.Second)
		if g.word(0, layout.ReignWord) == before {
			t.Error("the master beats no more")
		}
		return nil
	})
	g.run()
}

// A server that was only separated comes back with an old view and old memory: it is filled. If the others have
// crashed, the store is lost, and no other master has taken charge.
func TestAServerThatWasSeparatedIsFilled(t *testing.T) {
	for _, crash := range []bool{false, true} {
		g := newRigOf(t, 2, large, simrack.Options{})
		g.format(fusee.FormatConfig{Groups: 8, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
		var ready, ready2 bool
		var m, m2 *fusee.Master
		var ended, ended2 error
		g.keep("cn3", 100*time.Millisecond, &ready, &m, &ended)
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			for !ready {
				rt.Sleep(time.Millisecond)
			}
			if err := c.Insert(1, []byte("hello"), soon(rt)); err != nil {
				return err
			}
			g.Host("ms1").SetLink(false)
			if err := c.Put(1, []byte("world"), soon(rt)); err != nil {
				return err
			}
			g.Host("cn3").Crash()
			g.keep("cn2", 100*time.Millisecond, &ready2, &m2, &ended2)
			for !ready2 {
				rt.Sleep(time.Millisecond)
			}
			rt.Sleep(300 * time.Millisecond)
			if crash {
				g.Host("ms0").Crash()
				rt.Sleep(20 * time.Millisecond)
				g.restart(0)
				g.Host("ms1").SetLink(true)
				_, err := c.Get(1, nil, soon(rt))
				rt.Sleep(3 * time.Second)
				if !errors.Is(ended2, kv.ErrLost) {
					t.Errorf("the last member has crashed: the master ended with %v, want %v; GET %v", ended2, kv.ErrLost, err)
				}
				return nil
			}
			g.Host("ms1").SetLink(true)
			if err := g.all(rt); err != nil {
				return err
			}
			g.Host("ms0").Crash()
			if v, err := c.Get(1, nil, soon(rt)); err != nil || string(v) != "world" {
				t.Errorf("GET %q, %v; master %v", v, err, ended2)
			}
			return nil
		})
		g.run()
	}
}

// The master does not touch the memory of a server that comes back with something else in it.
func TestForeignMemoryIsNotTouched(t *testing.T) {
	g := newRigOf(t, 3, large, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 8, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
	ready := false
	g.master("cn3", &ready)
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		for !ready {
			rt.Sleep(time.Millisecond)
		}
		g.Host("ms2").Crash()
		rt.Sleep(time.Second)
		clear(g.memory[2])
		copy(g.memory[2], "another program")
		was := slices.Clone(g.memory[2])
		g.Host("ms2").Restart()
		g.serve(2)
		rt.Sleep(3 * time.Second)
		if !slices.Equal(was, g.memory[2]) || g.viewAt(0).Has(2) {
			t.Errorf("the memory has changed, or ms2 is a member: view %x", g.viewAt(0))
		}
		return nil
	})
	g.run()
}

// A standby that takes charge goes on with a server that was filled since it began.
func TestAStandbyGoesOnWithAServerThatWasFilled(t *testing.T) {
	x := newThrone(t, 2, 2)
	g := x.g
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		for x.counted == 0 {
			rt.Sleep(time.Millisecond)
		}
		if err := c.Insert(1, []byte("hello"), soon(rt)); err != nil {
			return err
		}
		g.Host("ms1").Crash()
		if err := c.Put(1, []byte("world"), soon(rt)); err != nil {
			return err
		}
		g.restart(1)
		if err := g.all(rt); err != nil {
			return err
		}
		rt.Sleep(time.Second)
		g.Host("cn2").CrashApps()
		g.Host("ms0").Crash()
		if v, err := c.Get(1, nil, soon(rt)); err != nil || string(v) != "world" {
			t.Errorf("GET %q, %v; reigns of %v, ended %v, view %x", v, err, x.reigns, x.ended, g.viewAt(1))
		}
		return nil
	})
	g.run()
}

// An INSERT that is hung before it marks its object, while the object's server crashes, comes back and is filled,
// marks nothing more if the object's block has another owner: that one may have a part of a value there.
func TestAnINSERTMarksOnlyItsOwnObject(t *testing.T) {
	for n := 4; n <= 28 && !t.Failed(); n++ {
		var g *rig
		var frame wire.Frame
		stage, left, done := 0, n, false
		hang := func() { g.At(g.Now(), g.Host("cn1").HangAll) }
		g = newRigOf(t, 2, large, simrack.Options{Trace: func(ev *simnet.Event) {
			if ev.Kind != simnet.Sent || ev.Link() != "cn1" || ev.Dir() != fault.Up || wire.ParseFrame(ev.Frame, &frame) != nil {
				return
			}
			switch {
			case stage == 1 && frame.BTH.Opcode == wire.RCWriteOnly && frame.RETH.Length == 1:
				stage = 2 // the mark of the replica that clients do not read
			case stage == 2 && frame.BTH.Opcode == wire.RCWriteOnly && frame.RETH.Length == 1:
				stage, left = 3, n
				hang()
			case stage == 5:
				if left--; left == 0 {
					stage = 6
					hang()
				}
			}
		}})
		g.format(fusee.FormatConfig{Groups: 8, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
		ready := false
		var m *fusee.Master
		var ended error
		g.keep("cn3", 50*time.Millisecond, &ready, &m, &ended)
		var at uint64
		var ref layout.Ref
		g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
			for !ready {
				rt.Sleep(time.Millisecond)
			}
			if err := c.Insert(1, value(1, 100), soon(rt)); err != nil {
				return err
			}
			var err error
			if at, err = g.slotOf(c.Super(), 1); err != nil {
				return err
			}
			ref = g.slotValue(c.Super(), at)
			stage = 1
			err = c.Insert(2, value(2, 100), rt.Now().Add(20*time.Second))
			if done = true; stage < 3 {
				return fmt.Errorf("it was not hung: %w", err)
			}
			return nil
		})
		wait := func(rt verbs.Runtime, s int) bool {
			for end := rt.Now().Add(2 * time.Second); stage != s && !done && rt.Now() < end; {
				rt.Sleep(100 * time.Microsecond)
			}
			return stage == s
		}
		// other clients, one after the other
		next := func(rt verbs.Runtime, f func(c *fusee.Client) error) error {
			h := g.Host("cn2")
			over := false
			var err error
			h.Go("client", false, func(ctx verbs.Context) {
				var c *fusee.Client
				if c, err = fusee.Open(g.config(h, ctx), soon(ctx.Runtime())); err == nil {
					err = errors.Join(f(c), c.Close())
				}
				over = true
			})
			for !over {
				rt.Sleep(100 * time.Microsecond)
			}
			return err
		}
		var super layout.Superblock
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			super = c.Super()
			if !wait(rt, 3) {
				return fmt.Errorf("packet %d: no INSERT", n)
			}
			g.Host(fmt.Sprintf("ms%d", ref.Server)).Crash()
			rt.Sleep(300 * time.Millisecond)
			g.restart(ref.Server)
			if err := g.all(rt); err != nil {
				return err
			}
			stage = 5
			g.Host("cn1").ResumeAll()
			if !wait(rt, 6) {
				return nil // it had ended
			}
			seen := true
			if _, err := c.Get(2, nil, soon(rt)); err != nil {
				seen = false
			}
			// the block becomes empty, and then one of longer objects
			err := next(rt, func(c *fusee.Client) error {
				err := errors.Join(c.Delete(1, soon(rt)), c.Insert(3, value(3, 100), soon(rt)), c.Delete(3, soon(rt)))
				if seen {
					err = errors.Join(err, c.Delete(2, soon(rt)))
				}
				return err
			})
			if err == nil {
				err = next(rt, func(c *fusee.Client) error { return c.Insert(4, value(4, 900), soon(rt)) })
			}
			if err != nil {
				return fmt.Errorf("packet %d: %w", n, err)
			}
			g.Host("cn1").ResumeAll()
			for !done {
				rt.Sleep(time.Millisecond)
			}
			if v, err := c.Get(4, nil, rt.Now().Add(100*time.Millisecond)); err != nil || string(v) != string(value(4, 900)) {
				t.Errorf("packet %d: the other client's value: %d bytes, %v", n, len(v), err)
			}
			return nil
		})
		g.run()
		if ended != nil {
			t.Error("master:", ended)
		}
		g.audit(super, fmt.Sprintf("packet %d", n))
	}
}

// The copies of a block's word are raised with the word, when the objects have used all versions of the first one.
func TestCopiesOfABlocksWordAreRaised(t *testing.T) {
	g := newRigOf(t, 2, large, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 8, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
	var super layout.Superblock
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		super = c.Super()
		err := c.Insert(1, value(1, 100), soon(rt))
		for n := 0; n < 17000 && err == nil; n++ { // 63 objects with 256 versions each, and more
			err = c.Put(1, value(1, 100), soon(rt))
		}
		return err
	})
	g.run()
	g.audit(super, "in the end")
}
