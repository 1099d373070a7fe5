package sherman_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// load fills the tree with keys 0, 3, 6, …
func (g *rig) load(n uint64, want error) (st sherman.LoadStats) {
	h := g.Host("cn1")
	h.Go("load", false, func(ctx verbs.Context) {
		i := uint64(0)
		var err error
		var v [8]byte
		st, err = sherman.BulkLoad(sherman.Config{Context: ctx, Manager: h.Manager(ctx)}, g.servers, func() (uint64, []byte, bool) {
			i++
			copy(v[:], value(3*(i-1), 0))
			return 3 * (i - 1), v[:], i <= n
		}, ctx.Runtime().Now().Add(time.Hour))
		if !errors.Is(err, want) {
			g.t.Errorf("load: %v, want %v", err, want)
		}
	})
	g.run()
	return st
}

// A tree that was loaded in bulk is like any other: it has all keys in order, and it grows.
func TestBulkLoad(t *testing.T) {
	for _, s := range shapes {
		for _, keys := range []uint64{0, 1, 40, 1000} {
			t.Run(fmt.Sprintf("%v/%d", s.WithDefaults(), keys), func(t *testing.T) {
				g := newRig(t, simrack.Options{}, 8<<20)
				g.format(sherman.FormatConfig{Shape: s, Chunk: 16384})
				st := g.load(keys, nil)
				if st.Keys != keys {
					t.Errorf("%+v", st)
				}
				g.client("cn0", g.node(sherman.NodeConfig{}), func(c *sherman.Client, rt verbs.Runtime) error {
					return loaded(c, rt, keys)
				})
				g.run()
				if keys > 0 {
					g.load(10, kv.ErrExists)
				}
			})
		}
	}
}

func loaded(c *sherman.Client, rt verbs.Runtime, keys uint64) error {
	n := uint64(0)
	err := c.Scan(0, 1<<30, func(k uint64, v []byte) bool {
		if k != 3*n || string(v[:8]) != string(value(k, 0)) {
			n = 1 << 40
			return false
		}
		n++
		return true
	}, rt.Now().Add(time.Minute))
	if err != nil || n != keys {
		return fmt.Errorf("scan: %d keys of %d: %w", n, keys, err)
	}
	for k := uint64(0); k < 3*keys; k += 7 {
		if _, err := c.Get(k, nil, soon(rt)); k%3 == 0 && err != nil || k%3 != 0 && !errors.Is(err, kv.ErrNotFound) {
			return fmt.Errorf("key %d: %w", k, err)
		}
		if err := c.Upsert(k+1, value(k+1, 1), soon(rt)); err != nil {
			return err
		}
	}
	return nil
}

// LockState of a lock with a dead owner names the owner, and the time until a node suspects it.
func TestLocksNameTheirOwners(t *testing.T) {
	g := newRig(t, simrack.Options{}, region)
	g.format(sherman.FormatConfig{})
	h := g.Host("cn0")
	g.client("cn0", g.node(sherman.NodeConfig{}), func(c *sherman.Client, rt verbs.Runtime) error {
		if err := c.Insert(1, value(1, 0), soon(rt)); err != nil {
			return err
		}
		g.At(rt.Now().Add(6*time.Microsecond), h.Crash) // at that time it holds the lock
		return c.Put(1, value(1, 1), soon(rt))
	})
	const lease = 10 * time.Millisecond
	n := g.node(sherman.NodeConfig{Lease: lease})
	g.client("cn1", n, func(c *sherman.Client, rt verbs.Runtime) error {
		rt.Sleep(5 * time.Millisecond)
		for _, left := range []time.Duration{lease, lease - 4*time.Millisecond} {
			locks, err := c.Locks(0, soon(rt))
			if err != nil || len(locks) != 1 {
				return fmt.Errorf("%+v %w", locks, err)
			}
			l := locks[0]
			if l.Tag.Owner() == 0 || l.Holder.Peer != h.Addr().String() || l.Holder.Fenced || l.Left > left || l.Left < left-time.Millisecond {
				return fmt.Errorf("%+v", l)
			}
			rt.Sleep(4 * time.Millisecond)
		}
		if err := c.Put(1, value(1, 2), soon(rt)); err != nil {
			return err
		}
		locks, err := c.Locks(0, soon(rt))
		if err != nil || len(locks) != 0 {
			return fmt.Errorf("after a take-over: %+v %w", locks, err)
		}
		root, err := c.Root(soon(rt))
		if err != nil {
			return err
		}
		b := make([]byte, c.Super().Shape.Page)
		var p layout.Page
		if err := errors.Join(c.ReadPage(root, b, soon(rt)), p.Parse(c.Super().Shape, b)); err != nil || p.Count() != 1 {
			return fmt.Errorf("root %v: %d records: %w", root, p.Count(), err)
		}
		return nil
	})
	g.run()
}

// The greatest key goes into the last page, even if another key would begin a new page there.
func TestBulkLoadOfTheGreatestKey(t *testing.T) {
	for keys := range uint64(8) {
		g := newRig(t, simrack.Options{}, region)
		g.format(sherman.FormatConfig{Shape: layout.Shape{Page: 256}, Chunk: 4096})
		h := g.Host("cn1")
		h.Go("load", false, func(ctx verbs.Context) {
			i := uint64(0)
			_, err := sherman.BulkLoad(sherman.Config{Context: ctx, Manager: h.Manager(ctx)}, g.servers, func() (uint64, []byte, bool) {
				if i++; i > keys {
					return layout.MaxKey, value(1, 0), i == keys+1
				}
				return i, value(i, 0), true
			}, soon(ctx.Runtime()))
			if err != nil {
				t.Error(err)
			}
		})
		g.run()
		g.client("cn0", g.node(sherman.NodeConfig{}), func(c *sherman.Client, rt verbs.Runtime) error {
			n, last := uint64(0), uint64(0)
			err := c.Scan(0, 100, func(k uint64, _ []byte) bool { n++; last = k; return true }, soon(rt))
			if err != nil || n != keys+1 || last != layout.MaxKey {
				return fmt.Errorf("%d keys up to %x, want %d: %w", n, last, keys+1, err)
			}
			_, err = c.Get(layout.MaxKey, nil, soon(rt))
			return err
		})
		g.run()
	}
}
