package template_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/kvtest"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
	"github.com/rdmalab/rdmalab/store/template"
)

// rig is a rack with a table.
type rig struct {
	*kvtest.Rack
	memory map[string][]byte
	shape  template.Shape
}

func newRig(t *testing.T, region int, s template.Shape) *rig {
	t.Helper()
	g := &rig{memory: map[string][]byte{"ms0": make([]byte, region), "ms1": make([]byte, region)}}
	g.Rack = kvtest.NewRack(t, "name: template\nhosts: [{name: \"ms[0-1]\", role: memory}, {name: \"cn[0-1]\", role: compute}]", simrack.Options{},
		func(host string) memservice.Config { return memservice.Config{Buffer: g.memory[host]} })
	g.format(s)
	return g
}

// format makes a new table.
func (g *rig) format(s template.Shape) {
	g.T.Helper()
	g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) (err error) {
		g.shape, err = template.Format(g.config(ctx, m), s, kvtest.Soon(ctx.Runtime()))
		return err
	})
	g.Finish()
}

func (g *rig) config(ctx verbs.Context, m rdmacm.Manager) passive.Config {
	return passive.Config{Context: ctx, Manager: m, Servers: g.Servers}
}

// with runs f with two clients of a host, which f uses in turn.
func (g *rig) with(f func(a, b *template.Client, rt verbs.Runtime) error) {
	g.T.Helper()
	g.Client("cn1", func(ctx verbs.Context, m rdmacm.Manager) error {
		rt := ctx.Runtime()
		a, err := template.Open(g.config(ctx, m), kvtest.Soon(rt))
		if err != nil {
			return err
		}
		b, err := template.Open(g.config(ctx, m), kvtest.Soon(rt))
		if err != nil {
			return errors.Join(err, a.Close())
		}
		return errors.Join(f(a, b, rt), a.Close(), b.Close())
	})
	g.Finish()
}

func TestConformance(t *testing.T) {
	newRig(t, 1<<20, template.Shape{}).with(func(a, b *template.Client, rt verbs.Runtime) error {
		return kvtest.Check(kvtest.Env{A: a, B: b, Now: rt.Now, Largest: a.MaxValue(), Exact: true})
	})
}

// The round trips that the package comment promises.
func TestRoundTrips(t *testing.T) {
	newRig(t, 1<<20, template.Shape{}).with(func(a, _ *template.Client, rt verbs.Runtime) error {
		v := kv.MakeValue(1, 1, 40)
		err := a.Insert(1, v, kvtest.Soon(rt))
		for name, c := range map[string]struct {
			do   func() error
			want int
		}{
			"GET": {func() error { _, err := a.Get(1, nil, kvtest.Soon(rt)); return err }, 2},
			"PUT": {func() error { return errors.Join(a.Put(1, v, kvtest.Soon(rt)), a.Put(1, v, kvtest.Soon(rt))) }, 3},
		} {
			if err := c.do(); err != nil || a.Last().RTTs != c.want || a.Last().Retries != 0 {
				t.Errorf("%s: %v, %+v; want %d round trips", name, err, a.Last(), c.want)
			}
		}
		if err := a.Delete(1, kvtest.Soon(rt)); err != nil || a.Last().RTTs != 2 {
			t.Errorf("DELETE: %v, %+v", err, a.Last())
		}
		return err
	})
}

// A table that is full says so and stays right; memory is not used up by changes of the same keys.
func TestFull(t *testing.T) {
	newRig(t, 128<<10, template.Shape{Slots: 24}).with(func(a, b *template.Client, rt verbs.Runtime) error {
		var kept []uint64
		for key := range uint64(1000) {
			switch err := a.Insert(key, kv.MakeValue(key, 1, 40), kvtest.Soon(rt)); {
			case err == nil:
				kept = append(kept, key)
			case !errors.Is(err, kv.ErrFull) || !errors.Is(err, kv.ErrNoEffect):
				return err
			}
		}
		if len(kept) == 0 || len(kept) == 1000 {
			t.Errorf("%d keys fit", len(kept))
		}
		for n := range uint64(3000) {
			key := kept[int(n)%8]
			err := b.Delete(key, kvtest.Soon(rt))
			if err == nil {
				err = a.Insert(key, kv.MakeValue(key, n, 40), kvtest.Soon(rt))
			}
			if err != nil {
				return err
			}
		}
		for _, key := range kept {
			v, err := b.Get(key, nil, kvtest.Soon(rt))
			if err == nil {
				_, err = kv.CheckValue(key, v)
			}
			if err != nil {
				t.Errorf("key %d: %v", key, err)
			}
		}
		if err := a.Insert(1<<64-1, nil, kvtest.Soon(rt)); !errors.Is(err, kv.ErrNoEffect) {
			t.Errorf("INSERT of the greatest key: %v", err)
		}
		_, err := a.Get(1<<64-1, nil, kvtest.Soon(rt))
		if !errors.Is(err, kv.ErrNotFound) {
			t.Errorf("GET of the greatest key: %v", err)
		}
		return nil
	})
}

// A new table is made in the memory of a table that a client has opened. That client changes
// nothing of the new table; its operations fail with kv.ErrLost. The same holds for a client whose
// memory servers have lost their memory.
func TestOtherMemory(t *testing.T) {
	g := newRig(t, 1<<20, template.Shape{})
	phase := 0
	g.Client("cn1", func(ctx verbs.Context, m rdmacm.Manager) error {
		rt := ctx.Runtime()
		old, err := template.Open(g.config(ctx, m), kvtest.Soon(rt))
		if err != nil {
			return err
		}
		put := func(c *template.Client) error { return c.Insert(7, kv.MakeValue(7, 1, 40), kvtest.Soon(rt)) }
		if err := put(old); err != nil {
			return err
		}
		if _, err := template.Format(g.config(ctx, m), template.Shape{}, kvtest.Soon(rt)); err != nil {
			return err
		}
		young, err := template.Open(g.config(ctx, m), kvtest.Soon(rt))
		if err != nil {
			return err
		}
		if _, err := young.Get(7, nil, kvtest.Soon(rt)); !errors.Is(err, kv.ErrNotFound) {
			t.Errorf("GET of a key of the former table: %v", err)
		}
		before := slices.Concat(g.memory["ms0"], g.memory["ms1"])
		if err := put(old); !errors.Is(err, kv.ErrLost) || !errors.Is(err, kv.ErrNoEffect) {
			t.Errorf("INSERT by a client of the former table: %v", err)
		}
		if !slices.Equal(before, slices.Concat(g.memory["ms0"], g.memory["ms1"])) {
			t.Error("a client of the former table has changed the memory")
		}
		for phase = 1; phase == 1; {
			rt.Sleep(time.Millisecond)
		}
		if err := put(young); !errors.Is(err, kv.ErrLost) || !errors.Is(err, kv.ErrNoEffect) {
			t.Errorf("INSERT after the loss of the memory: %v", err)
		}
		if _, err := template.Open(g.config(ctx, m), kvtest.Soon(rt)); err == nil {
			t.Error("a client has opened a table that is lost")
		}
		return errors.Join(old.Close(), young.Close())
	})
	var crash func()
	crash = func() {
		if phase == 0 {
			g.At(g.Now().Add(time.Millisecond), crash)
			return
		}
		for _, name := range []string{"ms0", "ms1"} {
			g.Host(name).Crash()
			clear(g.memory[name])
			g.Host(name).Restart()
			g.Serve(name)
		}
		phase = 2
	}
	g.At(g.Now().Add(time.Millisecond), crash)
	g.Finish()
}

// Memory of anything else is not taken for a table.
func TestForeignMemory(t *testing.T) {
	g := newRig(t, 1<<20, template.Shape{})
	for _, at := range []int{0, 8, 16, 40, 48, 56} {
		good := slices.Clone(g.memory["ms1"][:64])
		for i := range 8 {
			g.memory["ms1"][at&^7+i] ^= 0xa5
		}
		g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
			if c, err := template.Open(g.config(ctx, m), kvtest.Soon(ctx.Runtime())); err == nil {
				t.Errorf("byte %d of a superblock: no error", at)
				return c.Close()
			}
			return nil
		})
		g.Finish()
		copy(g.memory["ms1"], good)
	}
}
