package pdpm_test

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/kvtest"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
	"github.com/rdmalab/rdmalab/store/pdpm"
)

// centralRig is a rack with a table of pDPM-Central on one memory server, and hosts md0 and md1 for
// coordinators.
type centralRig struct {
	*kvtest.Rack
	memory []byte
	// served is what Serve of the coordinator of each host has returned.
	served map[string]error
}

func newCentralRig(t *testing.T, s pdpm.Shape, opt simrack.Options) *centralRig {
	t.Helper()
	g := &centralRig{memory: make([]byte, 1<<20), served: map[string]error{}}
	g.Rack = kvtest.NewRack(
		t, "name: pdpm\nhosts: [{name: ms0, role: memory}, {name: \"md[0-1]\", role: metadata}, {name: \"cn[0-1]\", role: compute}]", opt,
		func(string) memservice.Config { return memservice.Config{Buffer: g.memory} },
	)
	g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
		_, err := pdpm.FormatCentral(passive.Config{Context: ctx, Manager: m, Servers: g.Servers}, s, kvtest.Soon(ctx.Runtime()))
		return err
	})
	g.Finish()
	return g
}

// coordinate starts a coordinator on a host.
func (g *centralRig) coordinate(host string) {
	h := g.Host(host)
	h.Go("coordinator", true, func(ctx verbs.Context) {
		cfg := pdpm.CoordinatorConfig{Config: passive.Config{Context: ctx, Servers: g.Servers}, Manager: h.Manager(ctx)}
		c, err := pdpm.NewCoordinator(cfg, kvtest.Soon(ctx.Runtime()))
		if err == nil {
			err = c.Serve()
		}
		g.served[host] = err
	})
}

// with runs f with two clients, which ask the coordinators of some hosts.
func (g *centralRig) with(f func(a, b *pdpm.CentralClient, rt verbs.Runtime) error, hosts ...string) {
	g.T.Helper()
	g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
		rt := ctx.Runtime()
		cfg := pdpm.CentralConfig{Context: ctx, Manager: m}
		for _, h := range hosts {
			cfg.Coordinators = append(cfg.Coordinators, g.Host(h).Addr())
		}
		a, err := pdpm.OpenCentral(cfg, kvtest.Soon(rt))
		if err != nil {
			return err
		}
		b, err := pdpm.OpenCentral(cfg, kvtest.Soon(rt))
		if err != nil {
			return errors.Join(err, a.Close())
		}
		return errors.Join(f(a, b, rt), a.Close(), b.Close())
	})
	g.Finish()
}

func TestCentralConformance(t *testing.T) {
	g := newCentralRig(t, pdpm.Shape{}, simrack.Options{})
	g.coordinate("md0")
	g.with(func(a, b *pdpm.CentralClient, rt verbs.Runtime) error {
		return kvtest.Check(kvtest.Env{A: a, B: b, Now: rt.Now, Largest: a.MaxValue(), Exact: true})
	}, "md0")
}

// A GET and a PUT take two round trips: the client's to the coordinator, and the coordinator's to
// the memory server.
func TestCentralRoundTripsInACapture(t *testing.T) {
	client, coordinator := &kvtest.Capture{}, &kvtest.Capture{Host: "md0"}
	g := newCentralRig(t, pdpm.Shape{}, simrack.Options{Trace: func(ev *simnet.Event) { client.See(ev); coordinator.See(ev) }})
	g.coordinate("md0")
	g.with(func(a, b *pdpm.CentralClient, rt verbs.Runtime) error {
		v := kv.MakeValue(1, 1, 100)
		get := func() error { _, err := a.Get(1, nil, kvtest.Soon(rt)); return err }
		put := func() error { return a.Put(1, v, kvtest.Soon(rt)) }
		if err := errors.Join(a.Insert(1, v, kvtest.Soon(rt)), put()); err != nil {
			return err
		}
		rt.Sleep(1e6)
		for _, s := range []struct {
			text, want string // what the coordinator sends, the answer last
			trips      int
			do         func() error
		}{
			{"GET", "READ", 2, get},
			{"PUT", "WRITE", 2, put},
			{"INSERT of a new key", "WRITE, WRITE", 3, func() error { return a.Insert(2, v, kvtest.Soon(rt)) }},
			{"DELETE", "WRITE", 2, func() error { return a.Delete(2, kvtest.Soon(rt)) }},
			{"INSERT of a key that was there", "WRITE", 2, func() error { return a.Insert(2, v, kvtest.Soon(rt)) }},
		} {
			client.Phases()
			coordinator.Phases()
			if err := s.do(); err != nil {
				t.Errorf("%s: %v", s.text, err)
			}
			rt.Sleep(1e6) // until the answer has been acknowledged
			if got := coordinator.Phases(); got != s.want+", WRITE_ONLY_IMM" && got != "ACK+"+s.want+", WRITE_ONLY_IMM" {
				t.Errorf("%s: the coordinator sends: %s; want %s and the answer", s.text, got, s.want)
			}
			if got := client.Phases(); got != "SEND, ACK" || a.Last().RTTs != s.trips {
				t.Errorf("%s: the client sends: %s, and counts %d round trips, want %d", s.text, got, a.Last().RTTs, s.trips)
			}
		}
		return nil
	}, "md0")
}

// A coordinator crashes; the next one finds all keys, with the newest value of which a copy is
// whole.
func TestCoordinatorCrash(t *testing.T) {
	g := newCentralRig(t, pdpm.Shape{Value: 40}, simrack.Options{})
	value := func(key, version uint64) []byte { return kv.MakeValue(key, version, 40) }
	g.coordinate("md0")
	g.with(func(a, _ *pdpm.CentralClient, rt verbs.Runtime) error {
		var errs []error
		for key := range uint64(40) {
			errs = append(errs, a.Insert(key, value(key, 1), kvtest.Soon(rt)))
			for v := range key % 3 {
				errs = append(errs, a.Put(key, value(key, 2+v), kvtest.Soon(rt)))
			}
		}
		return errors.Join(append(errs, a.Delete(7, kvtest.Soon(rt)))...)
	}, "md0")
	g.Host("md0").Crash()
	g.Host("md0").Restart()
	i := bytes.Index(g.memory, value(5, 3)) // as if its WRITE had not ended
	g.memory[i+20] ^= 1
	g.coordinate("md0")
	g.with(func(a, _ *pdpm.CentralClient, rt verbs.Runtime) error {
		for key := range uint64(40) {
			want := value(key, 1+key%3)
			if key == 5 {
				want = value(5, 2)
			}
			v, err := a.Get(key, nil, kvtest.Soon(rt))
			if key == 7 && !errors.Is(err, kv.ErrNotFound) || key != 7 && (err != nil || !bytes.Equal(v, want)) {
				t.Errorf("key %d: %x, %v; want %x", key, v, err, want)
			}
		}
		return errors.Join(a.Put(5, value(5, 4), kvtest.Soon(rt)), a.Insert(40, value(40, 1), kvtest.Soon(rt)))
	}, "md0")
}

// A coordinator hangs, another one takes the table over, the memory service restarts and forgets
// the fence. Then the first one goes on: it answers nothing of what it knows, and ends.
func TestCoordinatorFenceIsForgotten(t *testing.T) {
	g := newCentralRig(t, pdpm.Shape{Value: 40}, simrack.Options{})
	value := func(version uint64) []byte { return kv.MakeValue(1, version, 40) }
	g.coordinate("md0")
	g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
		rt := ctx.Runtime()
		open := func(host string) (*pdpm.CentralClient, error) {
			return pdpm.OpenCentral(pdpm.CentralConfig{Context: ctx, Manager: m, Coordinators: []netip.Addr{g.Host(host).Addr()}}, kvtest.Soon(rt))
		}
		a, err := open("md0")
		if err == nil {
			err = a.Insert(1, value(1), kvtest.Soon(rt))
		}
		if err != nil {
			return err
		}
		g.Host("md0").HangAll()
		g.coordinate("md1")
		other, err := open("md1")
		if err == nil {
			err = errors.Join(other.Put(1, value(2), kvtest.Soon(rt)), other.Delete(1, kvtest.Soon(rt)), other.Insert(1, value(3), kvtest.Soon(rt)))
		}
		if err != nil {
			return err
		}
		g.Host("ms0").Crash()
		g.Host("ms0").Restart()
		g.Serve("ms0")
		g.Host("md0").ResumeAll()
		if v, err := a.Get(1, nil, kvtest.Soon(rt)); err == nil {
			t.Errorf("GET by the first coordinator: %x", v)
		}
		return errors.Join(a.Close(), other.Close())
	})
	g.Finish()
	if err := g.served["md0"]; err == nil || err.Error() != "another coordinator has taken the table over" {
		t.Errorf("the first coordinator ended with %v", err)
	}
}

// A table that is full says so and stays right.
func TestCentralFull(t *testing.T) {
	g := newCentralRig(t, pdpm.Shape{Entries: 50}, simrack.Options{})
	g.coordinate("md0")
	g.with(func(a, b *pdpm.CentralClient, rt verbs.Runtime) error {
		for key := range uint64(60) {
			err := a.Insert(key, kv.MakeValue(key, 1, 40), kvtest.Soon(rt))
			if full := errors.Is(err, kv.ErrFull) && errors.Is(err, kv.ErrNoEffect); err != nil && !full || full != (key >= 50) {
				t.Errorf("INSERT of key %d: %v", key, err)
			}
			if _, err := b.Get(key, nil, kvtest.Soon(rt)); (err == nil) != (key < 50) || err != nil && !errors.Is(err, kv.ErrNotFound) {
				t.Errorf("GET of key %d: %v", key, err)
			}
		}
		return nil
	}, "md0")
}

// The network delays the coordinator's WRITE of a PUT for longer than the client waits. The
// coordinator must not give the key to the next request before the memory server has ended the
// connection of that WRITE. Otherwise the WRITE arrives later and overwrites the copy that the next
// request has written. The same holds if the client of the PUT dies.
func TestCentralLateWrite(t *testing.T) {
	const key, patience, late = 5, 40 * time.Millisecond, time.Second
	former, old, young := kv.MakeValue(key, 1, 40), kv.MakeValue(key, 2, 40), kv.MakeValue(key, 3, 40)
	for text, dies := range map[string]bool{"the client waits": false, "the client dies": true} {
		writes := 0
		var frame wire.Frame
		g := newCentralRig(t, pdpm.Shape{Value: 40}, simrack.Options{Trace: func(ev *simnet.Event) {
			if ev.Kind == simnet.Sent && ev.Link() == "md0" && ev.Dir() == fault.Up && wire.ParseFrame(ev.Frame, &frame) == nil && bytes.Contains(frame.Payload, old) {
				writes++
			}
		}})
		g.coordinate("md0")
		g.with(func(a, b *pdpm.CentralClient, rt verbs.Runtime) error {
			if err := a.Insert(key, former, kvtest.Soon(rt)); err != nil {
				return err
			}
			g.Host("md0").SetFaults([]fault.Rule{{Link: "md0", Dir: fault.Up, Kind: fault.Delay, Delay: late, Match: fault.Match{Opcodes: []wire.Opcode{wire.RCWriteOnly}}}})
			if dies {
				g.dying("cn1", key, old, patience)
				rt.Sleep(patience / 2)
				g.At(g.Now(), g.Host("cn1").CrashApps)
				rt.Sleep(patience / 2)
			} else if err := a.Put(key, old, rt.Now().Add(patience)); !errors.Is(err, kv.ErrTimeout) || errors.Is(err, kv.ErrNoEffect) {
				t.Errorf("%s: PUT: %v", text, err)
			}
			if writes == 0 || bytes.Contains(g.memory, old) {
				t.Errorf("%s: the coordinator has sent %d WRITEs, which should be on their way", text, writes)
			}
			g.Host("md0").SetFaults(nil)
			if err := b.Put(key, young, kvtest.Soon(rt)); err != nil {
				t.Errorf("%s: the next PUT: %v", text, err)
			}
			rt.Sleep(2 * late)
			if bytes.Contains(g.memory, old) {
				t.Errorf("%s: the late WRITE has changed the memory", text)
			}
			if v, err := b.Get(key, nil, rt.Now().Add(time.Second)); err != nil || !bytes.Equal(v, young) {
				t.Errorf("%s: GET: %x, %v; want %x", text, v, err, young)
			}
			return nil
		}, "md0")
	}
}

// dying starts a client on a host, which makes a PUT through the coordinator on md0. The test ends
// the client before the PUT returns.
func (g *centralRig) dying(host string, key uint64, value []byte, patience time.Duration) {
	h := g.Host(host)
	h.Go("client", true, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		c, err := pdpm.OpenCentral(pdpm.CentralConfig{Context: ctx, Manager: h.Manager(ctx), Coordinators: []netip.Addr{g.Host("md0").Addr()}}, kvtest.Soon(rt))
		if err == nil {
			err = c.Put(key, value, rt.Now().Add(patience))
		}
		if !errors.Is(err, verbs.ErrClosed) {
			g.T.Errorf("the client has not died: %v", err)
		}
	})
}
