package fusee_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// throne is a master on one host and its standby on another one.
type throne struct {
	g *rig
	// reigns are the hosts that have taken charge, in order. ended is how those ended that have.
	reigns []string
	ended  map[string]error
	// counted is the standby on which the last master counts.
	counted uint32
	ready   bool
	// began, if set, is called with each master that has taken charge. last is when the last one has.
	began func(*fusee.Master)
	last  clock.Time
	// dial, if set, is asked before a host connects to a server: false means that it cannot.
	dial func(from string, to netip.Addr) bool
}

const reignLease = 100 * time.Millisecond

func (x *throne) run(host string, standby bool) {
	h := x.g.Host(host)
	h.Go("master", true, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		cfg := x.g.config(h, ctx)
		cfg.Lease, cfg.ClientLease, cfg.Manager = reignLease, 2*time.Second, &cutManager{cfg.Manager, x, host, rt}
		var m *fusee.Master
		var err error
		if !standby {
			if m, err = fusee.OpenMaster(cfg, soon(rt)); err != nil {
				x.g.t.Error(err)
				return
			}
		} else {
			for !x.ready {
				rt.Sleep(time.Millisecond)
			}
		}
		err = fusee.Reign(cfg, m, nil, func() bool { return true }, func(m *fusee.Master) {
			x.reigns, x.last = append(x.reigns, host), rt.Now()
			m.Counted = func(standby uint32) { x.counted = standby }
			x.ready = true
			if x.began != nil {
				x.began(m)
			}
		})
		if x.ended[host] = err; err == nil {
			x.ended[host] = verbs.ErrClosed
		}
	})
}

// cutManager connects only where the test lets it.
type cutManager struct {
	rdmacm.Dialer
	x    *throne
	host string
	rt   verbs.Runtime
}

func (c *cutManager) Dial(qp verbs.QP, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	if c.x.dial != nil && !c.x.dial(c.host, to) {
		c.rt.Sleep(5 * time.Millisecond)
		return nil, verbs.ErrTimeout
	}
	return c.Dialer.Dial(qp, to, service, p, private, deadline)
}

func newThrone(t *testing.T, servers, replicas int) *throne {
	g := newRig(t, servers, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 8, Replicas: replicas, IndexReplicas: replicas, Block: 16 << 10})
	x := &throne{g: g, ended: map[string]error{}}
	x.run("cn2", false)
	x.run("cn3", true)
	return x
}

// The master dies, with its programs or with its NIC, is hung and goes on, or loses its link, alone or together with
// a memory server: the standby takes its place within the bound, and clients go on. The former master that comes
// back does nothing but to be the standby of the new one, and takes its place when that one dies.
func TestTheStandbyTakesThePlaceOfTheMaster(t *testing.T) {
	for _, servers := range []int{2, 3} {
		for _, what := range []string{"dies", "NIC", "hangs", "link", "dies with ms0", "hangs with ms0", "hangs with ms1"} {
			x := newThrone(t, servers, 2)
			g, h := x.g, x.g.Host("cn2")
			g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
				fail := func(format string, args ...any) error {
					return fmt.Errorf("%d servers, %s: %w", servers, what, fmt.Errorf(format, args...))
				}
				for x.counted == 0 {
					rt.Sleep(time.Millisecond)
				}
				for n := range uint64(20) {
					if err := c.Insert(n, kv.MakeValue(n, 1, 100), soon(rt)); err != nil {
						return fail("INSERT: %w", err)
					}
				}
				switch what {
				case "dies", "dies with ms0":
					h.CrashApps()
				case "NIC":
					h.Crash()
				case "link":
					h.SetLink(false)
				default:
					h.HangAll()
				}
				began := rt.Now()
				switch what {
				case "dies with ms0", "hangs with ms0":
					g.Host("ms0").Crash()
				case "hangs with ms1":
					g.Host("ms1").Crash()
				}
				for n := range uint64(20) {
					if err := c.Put(n, kv.MakeValue(n, 2, 100), soon(rt)); err != nil {
						return fail("PUT: %w", err)
					}
				}
				for len(x.reigns) < 2 && rt.Now().Sub(began) < 5*time.Second {
					rt.Sleep(time.Millisecond)
				}
				if took := x.last.Sub(began); len(x.reigns) != 2 || x.reigns[1] != "cn3" || took > 8*reignLease {
					return fail("within %v: reigns of %v", took, x.reigns)
				}
				t.Logf("%d servers, %s: the standby has taken charge after %v, 20 PUTs after %v", servers, what, x.last.Sub(began), rt.Now().Sub(began))
				was := g.viewAt(servers - 1)
				switch what {
				case "link":
					h.SetLink(true)
				case "hangs", "hangs with ms0", "hangs with ms1":
					h.ResumeAll()
				default: // a program of a host that comes back
					h.Crash()
					h.Restart()
					x.counted = 0
					x.run("cn2", true)
				}
				number := x.counted
				for end := rt.Now().Add(5 * time.Second); x.counted == number && rt.Now() < end; {
					rt.Sleep(time.Millisecond)
				}
				rt.Sleep(time.Second)
				if x.counted == 0 || x.counted == number || len(x.reigns) != 2 || len(x.ended) > 1 {
					return fail("the former master is back: reigns of %v, the master counts on %d, before on %d; ended %v", x.reigns, x.counted, number, x.ended)
				}
				if now := g.viewAt(servers - 1); was.State() != layout.Settled || now.Epoch() > was.Epoch()+1 {
					return fail("the former master is back: view %x, now %x", was, now)
				}
				g.Host("cn3").CrashApps()
				rt.Sleep(8 * reignLease)
				if !slices.Equal(x.reigns, []string{"cn2", "cn3", "cn2"}) {
					return fail("the second master has died: reigns of %v, ended %v", x.reigns, x.ended)
				}
				for n := range uint64(20) {
					v, err := c.Get(n, nil, soon(rt))
					if got, bad := kv.CheckValue(n, v); err != nil || bad != nil || got != 2 {
						return fail("GET %d: %d, %w", n, got, errors.Join(err, bad))
					}
				}
				return nil
			})
			g.run()
		}
	}
}

// The standby dies: the master goes on alone, and later replaces a memory server without the standby's consent.
func TestTheMasterGoesOnWithoutItsStandby(t *testing.T) {
	x := newThrone(t, 2, 2)
	g := x.g
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		for x.counted == 0 {
			rt.Sleep(time.Millisecond)
		}
		g.Host("cn3").CrashApps()
		for end := rt.Now().Add(5 * time.Second); x.counted != 0 && rt.Now() < end; {
			rt.Sleep(time.Millisecond)
		}
		g.Host("ms0").Crash()
		if err := c.Insert(1, []byte("hello"), soon(rt)); err != nil {
			return err
		}
		if v := g.viewAt(1); v.State() != layout.Settled || v.Has(0) || !slices.Equal(x.reigns, []string{"cn2"}) {
			t.Errorf("view %x, reigns of %v, ended %v", v, x.reigns, x.ended)
		}
		return nil
	})
	g.run()
}

// The master and its standby are separated, each with one of the memory servers, or the standby alone with more or
// fewer of them: two masters never go on both.
func TestSeparatedMastersDoNotGoOnBoth(t *testing.T) {
	for servers := 2; servers <= 4; servers++ {
		for split := 1; split < servers; split++ {
			for _, dead := range []bool{false, true} { // before that, the standby dies, and the master has not noticed it
				x := newThrone(t, servers, min(servers, 3))
				g := x.g
				both := fmt.Sprintf("%d servers, %d of them with the master, standby dead %v", servers, split, dead)
				h := g.Host("cn0")
				h.Go("cut", false, func(ctx verbs.Context) {
					rt := ctx.Runtime()
					for x.counted == 0 {
						rt.Sleep(time.Millisecond)
					}
					if dead {
						g.Host("cn3").CrashApps()
					}
					x.dial = func(from string, to netip.Addr) bool {
						return from == "cn2" == (slices.Index(g.servers, to) < split)
					}
					x.cut(ctx, h)
					rt.Sleep(4 * time.Second)
					epochs, goes := x.sides(split)
					t.Logf("%s: settled views %x, reigns of %v, ended %v", both, epochs, x.reigns, x.ended)
					if goes > 1 {
						t.Errorf("%s: two masters have gone on, with %x and %x", both, epochs[0], epochs[1])
					}
				})
				g.run()
			}
		}
	}
}

// cut ends all connections to the memory servers: from now on x.dial decides who connects again.
func (x *throne) cut(ctx verbs.Context, h *simrack.Host) {
	for _, to := range x.g.servers {
		if _, err := memservice.DisconnectOthers(ctx, h.Manager(ctx), to, 1<<32-1, soon(ctx.Runtime())); err != nil {
			x.g.t.Error(err)
		}
	}
}

// sides returns the last settled view of the first n servers and that of the other servers. goes is
// the number of sides on which a master has gone on without the servers of the other side.
func (x *throne) sides(n int) (epochs [2]layout.View, goes int) {
	servers := len(x.g.servers)
	side := func(server int) int {
		if server < n {
			return 0
		}
		return 1
	}
	for i := range servers {
		if v := x.g.viewAt(i); v.State() == layout.Settled && v.Newer(epochs[side(i)]) {
			epochs[side(i)] = v
		}
	}
	for at, v := range epochs {
		inside := v != 0
		for i := range servers {
			inside = inside && (!v.Has(i) || side(i) == at)
		}
		if inside {
			goes++
		}
	}
	return epochs, goes
}

// The master and its standby are separated, each with half of the servers. A second standby is on
// the side of the master, and begins before the split or after it. The first standby may take
// charge of its half, so the master does not go on with the other half, although the second standby
// knows the new view.
func TestASecondStandbyAfterASplit(t *testing.T) {
	for _, servers := range []int{2, 4} {
		for half := range 2 {
			for _, early := range []bool{false, true} {
				x := newThrone(t, servers, min(servers, 3))
				g := x.g
				what := fmt.Sprintf("%d servers, the master in half %d, the second standby begins before the split %v", servers, half, early)
				h := g.Host("cn0")
				h.Go("cut", false, func(ctx verbs.Context) {
					rt := ctx.Runtime()
					for x.counted == 0 {
						rt.Sleep(time.Millisecond)
					}
					first := x.counted
					rt.Sleep(2 * reignLease) // each server tells the standby that the master counts on it
					if early {
						x.run("cn1", true)
						rt.Sleep(3 * reignLease)
						if x.counted != first {
							t.Errorf("%s: the master counts on %d, before on %d, which is alive", what, x.counted, first)
						}
					}
					x.dial = func(from string, to netip.Addr) bool {
						return (from == "cn3") == (slices.Index(g.servers, to)/(servers/2) != half)
					}
					x.cut(ctx, h)
					if !early {
						x.run("cn1", true)
					}
					rt.Sleep(4 * time.Second)
					epochs, goes := x.sides(servers / 2)
					if goes != 1 || !slices.Equal(x.reigns, []string{"cn2", "cn3"}) {
						t.Errorf("%s: masters have gone on in %d halves; settled views %x, reigns of %v, ended %v", what, goes, epochs, x.reigns, x.ended)
					}
				})
				g.run()
			}
		}
	}
}

// The master dies, and a memory server with it. While its standby takes charge, a second standby
// dies: the first one does not wait for the second.
func TestAStandbyTakesChargeWithoutAnother(t *testing.T) {
	for after := 3 * reignLease; after < 8*reignLease; after += reignLease / 4 { // since the master's death
		x := newThrone(t, 2, 2)
		g := x.g
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			for x.counted == 0 {
				rt.Sleep(time.Millisecond)
			}
			x.run("cn1", true)
			rt.Sleep(2 * reignLease)
			g.Host("cn2").CrashApps()
			g.Host("ms0").SetLink(false)
			rt.Sleep(after)
			g.Host("cn1").CrashApps()
			if err := c.Insert(1, []byte("hello"), rt.Now().Add(5*time.Second)); err != nil || !slices.Equal(x.reigns, []string{"cn2", "cn3"}) {
				return fmt.Errorf("the second standby dies after %v: reigns of %v, ended %v, view %x: %w", after, x.reigns, x.ended, g.viewAt(1), err)
			}
			return nil
		})
		g.run()
	}
}

// One of two memory servers crashes: the master goes on with the other one when its standby knows that.
func TestTheMasterAsksItsStandby(t *testing.T) {
	for _, victim := range []string{"ms0", "ms1"} {
		x := newThrone(t, 2, 2)
		x.g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			for x.counted == 0 {
				rt.Sleep(time.Millisecond)
			}
			x.g.Host(victim).Crash()
			if err := c.Insert(1, []byte("hello"), rt.Now().Add(3*time.Second)); err != nil || !slices.Equal(x.reigns, []string{"cn2"}) {
				return fmt.Errorf("%s: reigns of %v: %w", victim, x.reigns, err)
			}
			return nil
		})
		x.g.run()
	}
}

// The standby dies, and a memory server crashes before the master has noticed the former. The dead
// standby may be one that takes charge of that server, so another standby does not help. The master
// goes on when the server answers again, or has lost its memory: then it fills the server. The master
// retires the dead standby, and counts on the other one.
func TestTheMasterWaitsForAServer(t *testing.T) {
	for victim := range 2 {
		for _, lost := range []bool{false, true} {
			x := newThrone(t, 2, 2)
			g := x.g
			what := fmt.Sprintf("ms%d, memory lost %v", victim, lost)
			left := 1 - victim
			server := g.Host(fmt.Sprintf("ms%d", victim))
			g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
				for x.counted == 0 {
					rt.Sleep(time.Millisecond)
				}
				first := x.counted
				if err := c.Insert(1, []byte("hello"), soon(rt)); err != nil {
					return err
				}
				g.Host("cn3").CrashApps()
				if lost {
					server.Crash()
				} else {
					server.SetLink(false)
				}
				for _, when := range []string{"without a standby", "with another standby"} {
					rt.Sleep(2 * time.Second)
					if v := g.viewAt(left); v.State() != layout.Preparing || !slices.Equal(x.reigns, []string{"cn2"}) || len(x.ended) > 0 || x.counted != first {
						t.Errorf("%s, %s: view %x, reigns of %v, ended %v, the master counts on %d, before on %d", what, when, v, x.reigns, x.ended, x.counted, first)
					}
					if when == "without a standby" {
						x.run("cn3", true)
					}
				}
				if lost {
					g.restart(victim)
				} else {
					server.SetLink(true)
				}
				if err := c.Put(1, []byte("world"), soon(rt)); err != nil {
					return fmt.Errorf("%s: reigns of %v, the master counts on %d, ended %v, view %x: %w", what, x.reigns, x.counted, x.ended, g.viewAt(left), err)
				}
				for end := rt.Now().Add(5 * time.Second); (g.viewAt(left).State() != layout.Settled || g.viewAt(left).Members() < 2) && rt.Now() < end; {
					rt.Sleep(time.Millisecond)
				}
				if v := g.viewAt(left); v.State() != layout.Settled || v.Members() != 2 || !slices.Equal(x.reigns, []string{"cn2"}) {
					t.Errorf("%s: view %x, reigns of %v, ended %v", what, v, x.reigns, x.ended)
				}
				for end := rt.Now().Add(5 * time.Second); (x.counted == 0 || x.counted == first) && rt.Now() < end; {
					rt.Sleep(time.Millisecond)
				}
				if x.counted == 0 || x.counted == first {
					t.Errorf("%s: the master counts on %d, before on %d", what, x.counted, first)
				}
				return nil
			})
			g.run()
		}
	}
}

// While the master waits for servers without which the store is lost, a client and a standby that begin wait, too: the
// store is not lost if the servers answer again.
func TestAClientBeginsWhileTheMasterWaits(t *testing.T) {
	x := newThrone(t, 4, 2)
	g := x.g
	h := g.Host("cn0")
	h.Go("faults", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		for x.counted == 0 {
			rt.Sleep(time.Millisecond)
		}
		first := x.counted
		g.Host("cn3").CrashApps()
		g.Host("ms0").SetLink(false)
		g.Host("ms1").SetLink(false)
		rt.Sleep(3 * time.Second)
		if v := g.viewAt(2); v.State() != layout.Preparing || v.Members() != 2 {
			t.Errorf("the master does not wait: view %x", v)
		}
		g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
			return c.Insert(1, []byte("hello"), soon(rt))
		})
		x.run("cn3", true)
		rt.Sleep(time.Second)
		g.Host("ms0").SetLink(true)
		g.Host("ms1").SetLink(true)
		for end := rt.Now().Add(8 * time.Second); (x.counted == 0 || x.counted == first) && rt.Now() < end; {
			rt.Sleep(time.Millisecond)
		}
		if v := g.viewAt(2); v.State() != layout.Settled || v.Members() < 3 || x.counted == 0 || x.counted == first || len(x.ended) > 0 {
			t.Errorf("view %x, the master counts on %d, before on %d, ended %v", v, x.counted, first, x.ended)
		}
	})
	g.run()
}
