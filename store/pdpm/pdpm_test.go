package pdpm_test

import (
	"bytes"
	"errors"
	"strings"
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

// rig is a rack with a table on one memory server.
type rig struct {
	*kvtest.Rack
	memory []byte
}

func newRig(t *testing.T, region int, s pdpm.Shape, opt simrack.Options) *rig {
	t.Helper()
	g := &rig{memory: make([]byte, region)}
	g.Rack = kvtest.NewRack(t, "name: pdpm\nhosts: [{name: ms0, role: memory}, {name: \"cn[0-1]\", role: compute}]", opt,
		func(string) memservice.Config { return memservice.Config{Buffer: g.memory} })
	g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
		_, err := pdpm.Format(g.config(ctx, m), s, kvtest.Soon(ctx.Runtime()))
		return err
	})
	g.Finish()
	return g
}

func (g *rig) config(ctx verbs.Context, m rdmacm.Manager) passive.Config {
	return passive.Config{Context: ctx, Manager: m, Servers: g.Servers}
}

// with runs f with two clients of cn0, which f uses in turn.
func (g *rig) with(f func(a, b *pdpm.Client, rt verbs.Runtime) error) {
	g.T.Helper()
	g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
		rt := ctx.Runtime()
		a, err := pdpm.Open(g.config(ctx, m), kvtest.Soon(rt))
		if err != nil {
			return err
		}
		b, err := pdpm.Open(g.config(ctx, m), kvtest.Soon(rt))
		if err != nil {
			return errors.Join(err, a.Close())
		}
		return errors.Join(f(a, b, rt), a.Close(), b.Close())
	})
	g.Finish()
}

func TestConformance(t *testing.T) {
	newRig(t, 1<<20, pdpm.Shape{}, simrack.Options{}).with(func(a, b *pdpm.Client, rt verbs.Runtime) error {
		return kvtest.Check(kvtest.Env{A: a, B: b, Now: rt.Now, Largest: a.MaxValue(), Exact: true})
	})
}

// The round trips of each operation, counted on the wire: one for a GET and four for a PUT, as in
// the paper.
func TestRoundTripsInACapture(t *testing.T) {
	seen := &kvtest.Capture{}
	newRig(t, 1<<20, pdpm.Shape{}, simrack.Options{Trace: seen.See}).with(func(a, b *pdpm.Client, rt verbs.Runtime) error {
		const change = "CMP_SWAP+READ, WRITE, WRITE, WRITE"
		v := kv.MakeValue(1, 1, 100)
		get := func(c *pdpm.Client) func() error {
			return func() error { _, err := c.Get(1, nil, kvtest.Soon(rt)); return err }
		}
		for _, s := range []struct {
			text, want string
			client     *pdpm.Client
			do         func() error
		}{
			{"INSERT of a new key", "READ, CMP_SWAP, " + change, a, func() error { return a.Insert(1, v, kvtest.Soon(rt)) }},
			{"PUT", change, a, func() error { return a.Put(1, v, kvtest.Soon(rt)) }},
			{"GET", "READ", a, get(a)},
			{"the first GET of another client", "READ, READ", b, get(b)},
			{"DELETE", change, b, func() error { return b.Delete(1, kvtest.Soon(rt)) }},
			{"INSERT of a key that was there", change, a, func() error { return a.Insert(1, v, kvtest.Soon(rt)) }},
		} {
			seen.Phases()
			if err := s.do(); err != nil {
				t.Errorf("%s: %v", s.text, err)
			}
			if got, n := seen.Phases(), strings.Count(s.want, ", ")+1; got != s.want || s.client.Last().RTTs != n {
				t.Errorf("%s: on the wire: %s; want %s; the client counts %d round trips", s.text, got, s.want, s.client.Last().RTTs)
			}
		}
		return nil
	})
}

// A client dies with a lock, after one of the requests of its PUT. Others wait for the lease, take
// the lock over, and make of the entry what it was, or what it was to be if the redo copy was whole.
// Then the lock is free.
func TestDeadHolder(t *testing.T) {
	const key, lease = 5, 3 * time.Millisecond
	former, young := kv.MakeValue(key, 1, 40), kv.MakeValue(key, 2, 40)
	for _, c := range []struct {
		text     string
		requests int  // of the PUT, that are sent
		torn     bool // the copy in place is not whole
		redo     bool // the redo copy is not whole
		want     []byte
	}{
		{"with the lock alone", 1, false, false, former},
		{"while it writes the redo copy", 2, false, true, former},
		{"with the redo copy", 2, false, false, young},
		{"with both copies", 3, false, false, young},
		{"while it writes in place", 3, true, false, young},
	} {
		var g *rig
		armed, n := false, 0
		var frame wire.Frame
		g = newRig(t, 1<<20, pdpm.Shape{Value: 40, Lease: lease}, simrack.Options{Trace: func(ev *simnet.Event) {
			if !armed || ev.Kind != simnet.Sent || ev.Link() != "cn1" || ev.Dir() != fault.Up || wire.ParseFrame(ev.Frame, &frame) != nil {
				return
			}
			if op := frame.BTH.Opcode; op == wire.RCCmpSwap || op == wire.RCWriteOnly {
				if n++; n == c.requests {
					g.At(g.Now(), g.Host("cn1").CrashApps)
				}
			}
		}})
		g.Client("cn1", func(ctx verbs.Context, m rdmacm.Manager) error {
			rt := ctx.Runtime()
			dying, err := pdpm.Open(g.config(ctx, m), kvtest.Soon(rt))
			if err == nil {
				err = dying.Insert(key, former, kvtest.Soon(rt))
			}
			if err != nil {
				return err
			}
			armed = true
			_ = dying.Put(key, young, kvtest.Soon(rt))
			if armed = false; n != c.requests {
				t.Errorf("%s: the client has sent %d requests", c.text, n)
			}
			return nil
		})
		g.Finish()
		if err := g.Settle(time.Millisecond); err != nil { // the last request arrives
			t.Fatal(err)
		}
		if c.torn || c.redo { // the first copy of the new value
			i := bytes.Index(g.memory, young)
			g.memory[i+20] ^= 1
		}
		g.with(func(a, b *pdpm.Client, rt verbs.Runtime) error {
			began := rt.Now()
			if c.torn {
				v, err := a.Get(key, nil, kvtest.Soon(rt))
				if err != nil || !bytes.Equal(v, c.want) {
					t.Errorf("%s: GET: %x, %v", c.text, v, err)
				}
			} else if err := b.Insert(key, young, kvtest.Soon(rt)); !errors.Is(err, kv.ErrExists) {
				t.Errorf("%s: INSERT: %v", c.text, err)
			}
			if took := rt.Now().Sub(began); took < lease {
				t.Errorf("%s: the lock was taken over after %v, before the lease of %v", c.text, took, lease)
			}
			if v, err := a.Get(key, nil, kvtest.Soon(rt)); err != nil || !bytes.Equal(v, c.want) {
				t.Errorf("%s: GET after the takeover: %x, %v", c.text, v, err)
			}
			if err := a.Put(key, young, kvtest.Soon(rt)); err != nil || a.Last().Retries > 0 {
				t.Errorf("%s: the lock is not free: %v, %+v", c.text, err, a.Last())
			}
			return nil
		})
	}
}

// A holder of a lock is fenced, another client takes the lock over, and the memory service restarts
// and forgets the fence. The holder connects again, but does not go on with its PUT.
func TestFenceIsForgotten(t *testing.T) {
	const key, lease = 5, 3 * time.Millisecond
	former, young, late := kv.MakeValue(key, 1, 40), kv.MakeValue(key, 2, 40), kv.MakeValue(key, 3, 40)
	var g *rig
	armed := false
	var frame wire.Frame
	g = newRig(t, 1<<20, pdpm.Shape{Value: 40, Lease: lease}, simrack.Options{Trace: func(ev *simnet.Event) {
		if armed && ev.Kind == simnet.Sent && ev.Link() == "cn1" && ev.Dir() == fault.Up && wire.ParseFrame(ev.Frame, &frame) == nil && frame.BTH.Opcode == wire.RCWriteOnly {
			armed = false
			g.At(g.Now(), func() { g.Host("cn1").SetLink(false) }) // its client has the lock, and its redo copy is in doubt
		}
	}})
	done := false
	g.Client("cn1", func(ctx verbs.Context, m rdmacm.Manager) error {
		rt := ctx.Runtime()
		slow, err := pdpm.Open(g.config(ctx, m), kvtest.Soon(rt))
		if err == nil {
			err = slow.Insert(key, former, kvtest.Soon(rt))
		}
		if err != nil {
			return err
		}
		armed = true
		if err := slow.Put(key, late, kvtest.Soon(rt)); !errors.Is(err, kv.ErrTimeout) || errors.Is(err, kv.ErrNoEffect) {
			t.Errorf("PUT of the former holder: %v", err)
		}
		v, err := slow.Get(key, nil, kvtest.Soon(rt))
		if err != nil || !bytes.Equal(v, young) {
			t.Errorf("GET of the former holder: %x, %v", v, err)
		}
		done = true
		return slow.Close()
	})
	g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
		rt := ctx.Runtime()
		rt.Sleep(lease) // until the other client has the lock
		c, err := pdpm.Open(g.config(ctx, m), kvtest.Soon(rt))
		if err == nil {
			err = c.Put(key, young, kvtest.Soon(rt))
		}
		if err != nil {
			return err
		}
		if c.Last().Retries == 0 {
			t.Error("the lock was free")
		}
		g.Host("ms0").Crash()
		g.Host("ms0").Restart()
		g.Serve("ms0")
		g.Host("cn1").SetLink(true)
		return c.Close()
	})
	g.Finish()
	if !done {
		t.Error("the former holder did not finish")
	}
}

// A table that is full says so and stays right.
func TestFull(t *testing.T) {
	newRig(t, 1<<20, pdpm.Shape{Entries: 50}, simrack.Options{}).with(func(a, b *pdpm.Client, rt verbs.Runtime) error {
		for key := range uint64(60) {
			err := a.Insert(key, kv.MakeValue(key, 1, 40), kvtest.Soon(rt))
			if full := errors.Is(err, kv.ErrFull) && errors.Is(err, kv.ErrNoEffect); err != nil && !full || full != (key >= 50) {
				t.Errorf("INSERT of key %d: %v", key, err)
			}
		}
		for key := range uint64(60) {
			v, err := b.Get(key, nil, kvtest.Soon(rt))
			if err == nil {
				_, err = kv.CheckValue(key, v)
			}
			if (err == nil) != (key < 50) || err != nil && !errors.Is(err, kv.ErrNotFound) {
				t.Errorf("GET of key %d: %v", key, err)
			}
		}
		if err := a.Insert(1<<64-1, nil, kvtest.Soon(rt)); !errors.Is(err, kv.ErrNoEffect) {
			t.Errorf("INSERT of the greatest key: %v", err)
		}
		return nil
	})
}

// The memory has another table, or something else: clients say so and change nothing of it.
func TestOtherMemory(t *testing.T) {
	g := newRig(t, 1<<20, pdpm.Shape{}, simrack.Options{})
	g.Client("cn1", func(ctx verbs.Context, m rdmacm.Manager) error {
		rt := ctx.Runtime()
		old, err := pdpm.Open(g.config(ctx, m), kvtest.Soon(rt))
		if err != nil {
			return err
		}
		if err := old.Insert(7, nil, kvtest.Soon(rt)); err != nil {
			return err
		}
		if _, err := pdpm.Format(g.config(ctx, m), pdpm.Shape{}, kvtest.Soon(rt)); err != nil {
			return err
		}
		before := bytes.Clone(g.memory)
		if err := old.Put(7, nil, kvtest.Soon(rt)); !errors.Is(err, kv.ErrLost) || !errors.Is(err, kv.ErrNoEffect) {
			t.Errorf("PUT by a client of the former table: %v", err)
		}
		if !bytes.Equal(before, g.memory) {
			t.Error("a client of the former table has changed the memory")
		}
		for _, at := range []int{0, 16, 40, 48, 56} {
			g.memory[at+7] ^= 0x85
			if c, err := pdpm.Open(g.config(ctx, m), kvtest.Soon(rt)); err == nil {
				t.Errorf("byte %d of a superblock: no error", at+7)
				_ = c.Close()
			}
			g.memory[at+7] ^= 0x85
		}
		return old.Close()
	})
	g.Finish()
}
