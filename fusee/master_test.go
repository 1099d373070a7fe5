package fusee_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
)

// master runs a master on a host; ready is set when it has taken charge.
func (g *rig) master(host string, ready *bool) {
	h := g.Host(host)
	h.Go("master", true, func(ctx verbs.Context) {
		cfg := g.config(h, ctx)
		cfg.Lease, cfg.ClientLease = 100*time.Millisecond, 2*time.Second
		m, err := fusee.OpenMaster(cfg, soon(ctx.Runtime()))
		if *ready = true; err == nil {
			err = m.Run()
		}
		if err != nil && !errors.Is(err, verbs.ErrClosed) && !errors.Is(err, kv.ErrLost) {
			g.t.Error("master:", err)
		}
	})
}

// With a master, every replication factor r survives the crashes of r - 1 memory servers, one after the
// other, the primary of the index among them: what was acknowledged is there, and clients go on. The
// loss of the last replica is reported.
func TestMasterReplacesServersAtEveryReplicationFactor(t *testing.T) {
	for r := 2; r <= 3; r++ {
		for first := range 3 {
			g := newRig(t, 3, simrack.Options{})
			g.format(fusee.FormatConfig{Groups: 8, Replicas: r, IndexReplicas: r, Block: 16 << 10})
			ready, crashed := false, 0
			g.master("cn3", &ready)
			g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
				for !ready {
					rt.Sleep(time.Millisecond)
				}
				for n := range uint64(40) {
					if n%15 == 14 && crashed < r-1 {
						g.Host(fmt.Sprintf("ms%d", (first+crashed)%3)).Crash()
						crashed++
					}
					if err := c.Insert(n, kv.MakeValue(n, 1, 100), soon(rt)); err != nil {
						return fmt.Errorf("%d replicas, insert %d: %w", r, n, err)
					}
					if err := c.Put(n/2, kv.MakeValue(n/2, n+2, 100), soon(rt)); err != nil {
						return fmt.Errorf("%d replicas, put %d: %w", r, n, err)
					}
				}
				for n := range uint64(40) {
					if _, err := c.Get(n, nil, soon(rt)); err != nil {
						return fmt.Errorf("%d replicas, get %d after %d crashes: %w", r, n, crashed, err)
					}
				}
				report, err := c.Audit(soon(rt))
				if err != nil || len(report.Defects) > 0 || report.Keys != 40 || len(report.Members) != 3-crashed {
					t.Errorf("%d replicas, crashes from %d: %+v, %v", r, first, report, err)
				}
				g.Host(fmt.Sprintf("ms%d", (first+crashed)%3)).Crash() // of some object, this was the last replica
				for end := soon(rt); err == nil && rt.Now() < end; rt.Sleep(10 * time.Millisecond) {
					_, err = c.Get(1, nil, soon(rt))
				}
				if want := [...]error{2: kv.ErrLost, 3: kv.ErrTimeout}[r]; !errors.Is(err, want) { // with 3 replicas, no server remains that could say so
					t.Errorf("%d replicas, all of something lost: %v, want %v", r, err, want)
				}
				return nil
			})
			g.run()
		}
	}
}

// keep runs a master and returns what it ends with.
func (g *rig) keep(host string, lease time.Duration, ready *bool, m **fusee.Master, ended *error) {
	h := g.Host(host)
	h.Go("master", true, func(ctx verbs.Context) {
		cfg := g.config(h, ctx)
		cfg.Lease = lease
		var err error
		*m, err = fusee.OpenMaster(cfg, soon(ctx.Runtime()))
		if *ready = true; err == nil {
			err = (*m).Run()
		}
		*ended = err
	})
}

func (g *rig) viewAt(i int) layout.View {
	return layout.View(binary.LittleEndian.Uint64(g.memory[i][layout.ViewWord:]))
}

// slots lists the offsets of slots on a server that name objects.
func (g *rig) slots(s layout.Superblock, server int) (out []uint64) {
	for n := range 1 << s.Shape.Depth {
		for off := uint64(0); off < s.Shape.SubtableLen(); off += 8 {
			at := s.Shape.SubtableAt(n) + off
			if off%layout.BucketLen != 0 && s.Shape.Holds(s.Shape.Format.Ref(layout.Slot(g.word(server, at)))) {
				out = append(out, at)
			}
		}
	}
	return out
}

func (g *rig) word(server int, at uint64) uint64 {
	return binary.LittleEndian.Uint64(g.memory[server][at:])
}

func (g *rig) poke(server int, at, v uint64) { binary.LittleEndian.PutUint64(g.memory[server][at:], v) }

// A master's host is suspended for longer than the lease, at any packet, and again soon after. It gets the
// frames of that time later, or loses them. The master takes no server for crashed.
func TestAHungMasterLosesNoServer(t *testing.T) {
	for n := range 2 * 12 * 6 {
		var g *rig
		loses, first, second := n%2 == 1, 1+n/2%12, 12+n/24*2
		armed, left, again, hangs := false, first, second, 0
		g = newRig(t, 3, simrack.Options{Trace: func(ev *simnet.Event) {
			if armed && ev.Link() == "cn3" {
				if left--; left == 0 {
					hangs++
					armed = false
					h := g.Host("cn3")
					g.At(g.Now(), func() {
						h.HangAll()
						h.SetLink(!loses)
					})
					g.At(g.Now().Add(300*time.Millisecond), func() {
						h.SetLink(true)
						h.ResumeAll()
						armed, left, again = again > 0, again, 0
					})
				}
			}
		}})
		g.format(fusee.FormatConfig{Groups: 8, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
		ready := false
		var m *fusee.Master
		var ended error
		g.keep("cn3", 100*time.Millisecond, &ready, &m, &ended)
		var got error
		var was layout.View
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			for !ready {
				rt.Sleep(time.Millisecond)
			}
			if err := c.Insert(1, []byte("hello"), soon(rt)); err != nil {
				return err
			}
			was, armed = g.viewAt(0), true
			rt.Sleep(1500 * time.Millisecond)
			_, got = c.Get(1, nil, soon(rt))
			return nil
		})
		g.run()
		v := []layout.View{g.viewAt(0), g.viewAt(1), g.viewAt(2)}
		if got != nil || ended != nil || slices.Min(v) != was || slices.Max(v) != was || was&7 != 7 || was.State() != layout.Settled || hangs != 2 {
			t.Errorf("packets %d and %d, frames are lost %v: hung %d times, and no server has crashed; views %x, before %x; master ended with %v, GET: %v", first, second, loses, hangs, v, was, ended, got)
		}
	}
}

// A master that is hung in the middle of a change, and goes on after its successor has ended it, changes
// nothing.
//
// The requests of the change are the CASes of the view and of slots, and the WRITEs of the repair. The WRITEs
// before it ask the members whether they are alive.
func TestAHungMasterDoesNothingAfterItsSuccessor(t *testing.T) {
	const change = 5 // requests at least
	n := 1
	for hung := true; hung; n++ {
		var g *rig
		var frame wire.Frame
		var armed bool
		left := n
		hung = false
		g = newRig(t, 3, simrack.Options{Trace: func(ev *simnet.Event) {
			if armed && ev.Kind == simnet.Sent && ev.Link() == "cn3" && ev.Dir() == fault.Up && wire.ParseFrame(ev.Frame, &frame) == nil && (frame.BTH.Opcode == wire.RCCmpSwap || frame.BTH.Opcode == wire.RCWriteOnly && g.viewAt(1).State() == layout.Preparing) {
				if left--; left == 0 {
					armed = false
					hung = true
					g.At(g.Now(), g.Host("cn3").HangAll)
				}
			}
		}})
		g.format(fusee.FormatConfig{Groups: 8, Replicas: 3, IndexReplicas: 3, Block: 16 << 10})
		var ready, ready2 bool
		var m, m2 *fusee.Master
		var ended, ended2 error
		g.keep("cn3", 5*time.Second, &ready, &m, &ended)
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			for !ready {
				rt.Sleep(time.Millisecond)
			}
			if err := c.Insert(1, []byte("first"), soon(rt)); err != nil {
				return err
			}
			s := c.Super()
			at := g.slots(s, 0)[0]
			was := g.word(0, at)
			if err := c.Put(1, []byte("second"), soon(rt)); err != nil {
				return err
			}
			now := g.word(0, at)
			// a PUT that has reached one backup, and whose client has died: primary was, backups now and was
			g.poke(0, at, was)
			g.poke(2, at, was)
			armed = true
			g.Host("ms0").Crash()
			for end := rt.Now().Add(9 * time.Second); !hung && rt.Now() < end; {
				rt.Sleep(time.Millisecond)
			}
			if !hung {
				return nil // the change has fewer requests
			}
			former := g.word(1, layout.MasterWord)
			g.keep("cn2", 100*time.Millisecond, &ready2, &m2, &ended2)
			for !ready2 {
				rt.Sleep(time.Millisecond)
			}
			if now := g.word(1, layout.MasterWord); now == former || now == 0 {
				t.Errorf("request %d: the master had the number %d, its successor has %d: it cannot be fenced", n, former, now)
			}
			if err := c.Put(1, []byte("third"), soon(rt)); err != nil {
				return fmt.Errorf("request %d: put: %w", n, err)
			}
			v, err := c.Get(1, nil, soon(rt))
			t.Logf("request %d: acknowledged; GET %q %v; views %x %x; successor %v", n, v, err, g.viewAt(1), g.viewAt(2), ended2)
			g.Host("cn3").ResumeAll()
			for range 200 {
				rt.Sleep(50 * time.Millisecond)
				if v, err = c.Get(1, nil, soon(rt)); err != nil || string(v) != "third" {
					t.Errorf("request %d: after the PUT of third was acknowledged: GET %q, %v; slots %x %x (first %x, second %x); views %x %x; masters %v, %v", n, v, err, g.word(1, at), g.word(2, at), was, now, g.viewAt(1), g.viewAt(2), ended, ended2)
					break
				}
			}
			return nil
		})
		g.run()
	}
	if n-2 < change {
		t.Errorf("the master was hung at %d requests of the change, want %d at least", n-2, change)
	}
}

// A master begins while a member does not answer, the primary of the index too.
func TestMasterBeginsWithoutThePrimary(t *testing.T) {
	for _, victim := range []string{"ms1", "ms0"} {
		g := newRig(t, 3, simrack.Options{})
		g.format(fusee.FormatConfig{Groups: 8, Replicas: 3, IndexReplicas: 3, Block: 16 << 10})
		var ready, ready2 bool
		h := g.Host("cn2")
		h.Go("first master", true, func(ctx verbs.Context) {
			m, err := fusee.OpenMaster(g.config(h, ctx), soon(ctx.Runtime()))
			if ready = true; err == nil {
				_ = m.Run()
			}
		})
		var m2 *fusee.Master
		var ended2 error
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			for !ready {
				rt.Sleep(time.Millisecond)
			}
			if err := c.Insert(1, []byte("hello"), soon(rt)); err != nil {
				return err
			}
			h.Crash()
			g.Host(victim).Crash()
			g.keep("cn3", 100*time.Millisecond, &ready2, &m2, &ended2)
			for !ready2 {
				rt.Sleep(time.Millisecond)
			}
			rt.Sleep(time.Second)
			v, err := c.Get(1, nil, soon(rt))
			t.Logf("%s: master %v, GET %q %v", victim, ended2, v, err)
			if ended2 != nil || err != nil {
				t.Errorf("%s: a master that begins after its crash ends with %v; GET: %v", victim, ended2, err)
			}
			return nil
		})
		g.run()
	}
}

// A master has died when some members had the settled view: its successor ends the change.
func TestTheSuccessorSettlesTheView(t *testing.T) {
	g := newRig(t, 3, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 8, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
	ready := false
	var m *fusee.Master
	var ended error
	v := layout.FirstView(3).Next(func(int) bool { return true })
	for i := range 3 {
		w := v.As(layout.Settled)
		if i == 1 {
			w = v
		}
		binary.LittleEndian.PutUint64(g.memory[i][layout.ViewWord:], uint64(w))
	}
	g.keep("cn3", 100*time.Millisecond, &ready, &m, &ended)
	h := g.Host("cn0")
	h.Go("client", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		rt.Sleep(2 * time.Second)
		c, err := fusee.Open(g.config(h, ctx), soon(rt))
		if err != nil {
			t.Errorf("open 2 s after the successor began: %v (views %x %x %x, master ended %v)", err, g.viewAt(0), g.viewAt(1), g.viewAt(2), ended)
			return
		}
		if err := c.Insert(1, []byte("x"), soon(rt)); err != nil {
			t.Error(err)
		}
	})
	g.run()
}

// An object whose change has lost is not used again while a backup names it: a repair could choose it.
func TestNoReplicaNamesALoserThatIsUsedAgain(t *testing.T) {
	for _, running := range []bool{false, true} {
		g := newRig(t, 3, simrack.Options{})
		g.format(fusee.FormatConfig{Groups: 8, Replicas: 3, IndexReplicas: 3, Block: 16 << 10})
		var ready bool
		var m *fusee.Master
		var ended error
		if running {
			g.keep("cn3", 100*time.Millisecond, &ready, &m, &ended)
		} else {
			ready = true
		}
		var number [3]uint32
		var slot [3]uint64
		var at uint64
		step := 0
		for i := 1; i <= 2; i++ {
			h := g.Host(fmt.Sprintf("cn%d", i))
			h.Go("writer", true, func(ctx verbs.Context) {
				rt := ctx.Runtime()
				for step < i {
					rt.Sleep(time.Millisecond)
				}
				c, err := fusee.Open(g.config(h, ctx), soon(rt))
				if err == nil {
					err = c.Put(1, []byte(fmt.Sprintf("writer-%d", i)), soon(rt))
				}
				if err != nil {
					t.Error(err)
				}
				number[i], slot[i] = c.Number(), g.word(0, at)
				step++
				rt.Sleep(time.Hour)
			})
		}
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			for !ready {
				rt.Sleep(time.Millisecond)
			}
			if err := c.Insert(1, []byte("old-value"), soon(rt)); err != nil {
				return err
			}
			s := c.Super()
			at = g.slots(s, 0)[0]
			old := g.word(0, at)
			for step = 1; step < 3; {
				rt.Sleep(time.Millisecond)
			}
			g.Host("cn1").CrashApps()
			g.Host("cn2").CrashApps()
			loser, winner := 1, 2
			if slot[1] < slot[2] {
				loser, winner = 2, 1
			}
			// both have died when each had reached one backup
			g.poke(0, at, old)
			g.poke(1, at, slot[loser])
			g.poke(2, at, slot[winner])
			h := g.Host("cn3")
			done := false
			h.Go("heir", false, func(ctx verbs.Context) {
				rt := ctx.Runtime()
				d, err := fusee.Open(g.config(h, ctx), soon(rt))
				if err == nil {
					err = d.Recover(number[loser], soon(rt))
				}
				for k := uint64(100); err == nil && k < 110; k++ {
					err = d.Insert(k, []byte("another"), soon(rt))
				}
				if err != nil {
					t.Error(err)
				}
				done = true
				rt.Sleep(20 * time.Second)
			})
			for !done {
				rt.Sleep(time.Millisecond)
			}
			t.Logf("before: %x %x %x (old, loser %x, winner %x)", g.word(0, at), g.word(1, at), g.word(2, at), slot[loser], slot[winner])
			// The recovery of the loser leaves the primary to the winner's.
			v, err := c.Get(1, nil, soon(rt))
			if won := fmt.Sprintf("writer-%d", winner); err != nil || string(v) != won && string(v) != "old-value" {
				t.Errorf("before the crash: %q, %v", v, err)
			}
			if g.word(2, at) != slot[winner] || g.word(1, at) != slot[winner] {
				t.Errorf("a backup names the loser: %x %x", g.word(1, at), g.word(2, at))
			}
			g.Host("ms0").Crash()
			if running {
				g.Host("ms2").Crash()
			} else { // the former master has died after it had prepared the change
				for i := 1; i <= 2; i++ {
					g.poke(i, layout.ViewWord, uint64(layout.FirstView(3).Next(func(i int) bool { return i > 0 })))
				}
				g.keep("cn3", 100*time.Millisecond, &ready, &m, &ended)
			}
			rt.Sleep(3 * time.Second)
			_, _ = c.Get(1, nil, soon(rt))
			v, err = c.Get(1, nil, soon(rt)) // the first one may have waited for ms0
			t.Logf("after: %x %x; view %x; %q %v", g.word(1, at), g.word(2, at), g.viewAt(1), v, err)
			if err != nil || string(v) != fmt.Sprintf("writer-%d", winner) {
				t.Errorf("master running %v: key 1 after the crash: %q, %v; master %v", running, v, err, ended)
			}
			return nil
		})
		g.run()
	}
}

// An object that clients see after a crash is there after the next one, too: its INSERT had shown it in one
// replica when its client died.
func TestWhatIsSeenAfterACrashRemains(t *testing.T) {
	g := newRig(t, 3, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 8, Replicas: 3, IndexReplicas: 3, Block: 16 << 10})
	ready := false
	var m *fusee.Master
	var ended error
	g.keep("cn3", 100*time.Millisecond, &ready, &m, &ended)
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		for !ready {
			rt.Sleep(time.Millisecond)
		}
		if err := c.Insert(1, []byte("hello-hello"), soon(rt)); err != nil {
			return err
		}
		shape := c.Super().Shape
		// where is it?
		var ref layout.Ref
		for off := uint64(0); off < shape.SubtableLen(); off += 8 {
			w := layout.Slot(binary.LittleEndian.Uint64(g.memory[0][shape.SubtableAt(0)+off:]))
			if r := shape.Format.Ref(w); off%layout.BucketLen != 0 && shape.Holds(r) {
				ref = r
			}
		}
		s0, o0 := shape.Replica(ref.Server, ref.Place, 0)
		s1, o1 := shape.Replica(ref.Server, ref.Place, 1)
		s2, o2 := shape.Replica(ref.Server, ref.Place, 2)
		// as if the client had died after its WRITE of the mark to s1 and before those to s2 and s0
		if g.memory[s1][o1] != byte(layout.Valid) {
			t.Fatal("not there")
		}
		g.memory[s0][o0], g.memory[s2][o2] = byte(layout.Pending), byte(layout.Pending)
		g.Host(fmt.Sprintf("ms%d", s0)).Crash()
		_, err := c.Get(1, nil, soon(rt))
		for end := rt.Now().Add(500 * time.Millisecond); rt.Now() < end; rt.Sleep(10 * time.Millisecond) {
			_, err = c.Get(1, nil, soon(rt))
		}
		t.Logf("after the crash of ms%d: %v", s0, err)
		g.Host(fmt.Sprintf("ms%d", s1)).Crash()
		var then error
		for end := rt.Now().Add(500 * time.Millisecond); rt.Now() < end; rt.Sleep(10 * time.Millisecond) {
			_, then = c.Get(1, nil, soon(rt))
		}
		if err == nil && then != nil {
			t.Errorf("a GET has returned the value; after the second crash, of ms%d: %v", s1, then)
		}
		return nil
	})
	g.run()
}

// A view without the index is refused.
func TestAHostileViewIsRefused(t *testing.T) {
	g := newRig(t, 3, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 8, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
	for i := range 3 {
		v := layout.FirstView(3).Next(func(i int) bool { return i == 2 }).As(layout.Settled)
		binary.LittleEndian.PutUint64(g.memory[i][layout.ViewWord:], uint64(v))
	}
	h := g.Host("cn0")
	h.Go("client", false, func(ctx verbs.Context) {
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("panic: %v", p)
			}
		}()
		_, err := fusee.Open(g.config(h, ctx), soon(ctx.Runtime()))
		if !errors.Is(err, kv.ErrLost) {
			t.Errorf("open: %v, want %v", err, kv.ErrLost)
		}
	})
	g.run()
}
