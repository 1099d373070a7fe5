package nictable_test

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/kvtest"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/nictable"
)

// rig is a rack with a table on md0. Its estate has the context of a thread that never ends, like the
// daemon of a host.
type rig struct {
	*kvtest.Rack
	estate *nictable.Estate
	server *nictable.Server // the last one that serve has started
}

func newRig(t *testing.T, s nictable.Shape) *rig {
	t.Helper()
	g := &rig{Rack: kvtest.NewRack(t, "name: nictable\nhosts: [{name: md0, role: metadata}, {name: \"cn[0-1]\", role: compute}]", simrack.Options{}, nil)}
	g.replace(s)
	return g
}

// replace makes a table for the servers that are started from now on.
func (g *rig) replace(s nictable.Shape) {
	g.Host("md0").Go("estate", true, func(ctx verbs.Context) {
		e, err := nictable.NewEstate(ctx, s)
		if err != nil {
			g.T.Error(err)
		}
		g.estate = e
		for {
			ctx.Runtime().Sleep(time.Hour)
		}
	})
}

// serve starts a server, which ends when end is set.
func (g *rig) serve(end *bool) {
	h := g.Host("md0")
	h.Go("server", true, func(ctx verbs.Context) {
		for g.estate == nil {
			ctx.Runtime().Sleep(time.Microsecond)
		}
		s, err := nictable.NewServer(ctx, h.Manager(ctx), rdmacm.Params{}, g.estate)
		if err != nil {
			g.T.Error(err)
			return
		}
		g.server = s
		ctx.Runtime().Go("end", func() {
			for !*end {
				ctx.Runtime().Sleep(time.Millisecond)
			}
			s.Close()
		})
		if err := s.Serve(); err != nil {
			g.T.Error(err)
		}
	})
}

func (g *rig) open(ctx verbs.Context, m rdmacm.Manager) (*nictable.Client, error) {
	return nictable.Open(nictable.ClientConfig{Context: ctx, Manager: m, Server: g.Host("md0").Addr()}, kvtest.Soon(ctx.Runtime()))
}

// alone runs f with a server and its only client, and ends both.
func (g *rig) alone(f func(rt verbs.Runtime, c *nictable.Client) error) {
	g.T.Helper()
	var end bool
	g.serve(&end)
	g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
		c, err := g.open(ctx, m)
		if err != nil {
			return err
		}
		if err := f(ctx.Runtime(), c); err != nil {
			return err
		}
		end = true
		return c.Close()
	})
	g.Finish()
}

func TestConformance(t *testing.T) {
	for _, way := range []string{store.GetsNIC, store.GetsReads, store.GetsServer} {
		t.Run(way, func(t *testing.T) { conform(t, way) })
	}
}

func conform(t *testing.T, way string) {
	g := newRig(t, nictable.Shape{Items: 4000, Value: 4096})
	var end bool
	g.serve(&end)
	g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
		cfg := nictable.ClientConfig{Context: ctx, Manager: m, Server: g.Host("md0").Addr(), Gets: way}
		a, err := nictable.Open(cfg, kvtest.Soon(ctx.Runtime()))
		if err != nil {
			return err
		}
		b, err := nictable.Open(cfg, kvtest.Soon(ctx.Runtime()))
		if err != nil {
			return err
		}
		err = kvtest.Check(kvtest.Env{A: a, B: b, Now: ctx.Runtime().Now, Largest: a.MaxValue(), Exact: true})
		return errors.Join(err, a.Close(), b.Close())
	})
	g.Finish()
}

// Ten thousand keys of different lengths are found; then the process is gone, and they are still found,
// as often as a client asks; the next process takes the table over and changes it. With the race
// detector, which takes 25 times as long for each entry of a program, there are a thousand.
func TestProcessEnds(t *testing.T) {
	keys := uint64(10_000)
	if raceEnabled {
		keys = 1000
	}
	g := newRig(t, nictable.Shape{Items: int(keys), Value: 300})
	var first, second bool
	g.serve(&first)
	g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
		rt := ctx.Runtime()
		c, err := g.open(ctx, m)
		if err != nil {
			return err
		}
		for key := range keys {
			if err := c.Insert(key, kv.MakeValue(key, 1, 30+int(key%270)), kvtest.Soon(rt)); err != nil {
				t.Errorf("INSERT of key %d: %v", key, err)
				return nil
			}
		}
		if err := c.Insert(keys, nil, kvtest.Soon(rt)); !errors.Is(err, kv.ErrFull) {
			t.Errorf("INSERT into a full table: %v", err)
		}
		all := func(after string) {
			for key := range keys + 100 {
				v, err := c.Get(key, nil, kvtest.Soon(rt))
				if err == nil {
					_, err = kv.CheckValue(key, v)
				} else if key >= keys && errors.Is(err, kv.ErrNotFound) {
					err = nil
				}
				if err != nil {
					t.Fatalf("%s, key %d: %v", after, key, err)
				}
			}
		}
		all("at first")
		first = true
		rt.Sleep(200 * time.Millisecond)
		all("without a process")
		if err := c.Put(7, kv.MakeValue(7, 2, 50), rt.Now().Add(time.Second)); !errors.Is(err, kv.ErrTimeout) {
			t.Errorf("PUT without a process: %v", err)
		}
		g.serve(&second)
		if err := c.Put(7, kv.MakeValue(7, 3, 50), kvtest.Soon(rt)); err != nil {
			t.Errorf("PUT by the next process: %v", err)
		}
		all("with the next process")
		return c.Close()
	})
	g.Finish()
}

// No version is given out twice, also not by the next process.
func TestVersions(t *testing.T) {
	g := newRig(t, nictable.Shape{Items: 10, Value: 100})
	var first, second bool
	g.serve(&first)
	g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
		rt := ctx.Runtime()
		c, err := g.open(ctx, m)
		if err != nil {
			return err
		}
		for n := range uint64(5) {
			if err := c.Insert(n, kv.MakeValue(n, 1, 50), kvtest.Soon(rt)); err != nil {
				return err
			}
		}
		newest := c.Version()
		for n := range uint64(5) {
			if _, err := c.Get(n, nil, kvtest.Soon(rt)); err != nil {
				return err
			}
			newest = max(newest, c.Version())
		}
		first = true
		rt.Sleep(200 * time.Millisecond)
		g.serve(&second)
		_ = c.Put(0, kv.MakeValue(0, 2, 50), kvtest.Soon(rt)) // over the connection to the former process
		if err := c.Put(0, kv.MakeValue(0, 3, 50), kvtest.Soon(rt)); err != nil {
			return err
		}
		if _, err := c.Get(0, nil, kvtest.Soon(rt)); err != nil || c.Version() <= newest {
			t.Errorf("version %d behind %d: %v", c.Version(), newest, err)
		}
		return c.Close()
	})
	g.Finish()
}
