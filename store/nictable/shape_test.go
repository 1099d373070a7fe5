package nictable_test

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/kvtest"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/nictable"
)

// A client that was opened before the table was replaced finds the keys of the next one, which has other
// numbers of items and slots. If the next one is for longer values, for which the client has no room, its
// GETs fail: they do not say that a key is absent.
func TestTableOfAnotherShape(t *testing.T) {
	const keys = 20
	for _, next := range []nictable.Shape{{Items: 100, Value: 100}, {Items: 100, Value: 60}, {Items: 100, Value: 1000}} {
		g := newRig(t, nictable.Shape{Items: 8, Value: 100})
		end := new(bool)
		g.serve(end)
		g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
			rt, h := ctx.Runtime(), g.Host("md0")
			old, err := g.open(ctx, m)
			if err != nil {
				return err
			}
			h.EndProcesses()
			h.CrashNIC()
			h.RestartNIC()
			g.replace(next)
			rt.Sleep(time.Millisecond)
			end = new(bool)
			g.serve(end)
			c, err := g.open(ctx, m)
			if err != nil {
				return err
			}
			for key := range uint64(keys) {
				if err := c.Insert(key, kv.MakeValue(key, 1, 50), kvtest.Soon(rt)); err != nil {
					return err
				}
			}
			for key := range uint64(keys) {
				v, err := old.Get(key, nil, rt.Now().Add(4*time.Second))
				switch _, wrong := kv.CheckValue(key, v); {
				case next.Value > 100 && errors.Is(err, kv.ErrTimeout):
				case next.Value > 100 || err != nil || wrong != nil:
					t.Errorf("%v: GET of key %d: %d bytes, %v", next, key, len(v), err)
				}
				if next.Value > 100 || t.Failed() {
					break
				}
			}
			*end = true
			return errors.Join(old.Close(), c.Close())
		})
		g.Finish()
	}
}

// Two keys have the same two slots. A new key whose first slot is one of them goes to its second one,
// if the key there can move: the table is not full.
func TestSlotsOfTwoKeys(t *testing.T) {
	shape := nictable.Shape{Items: 8, Slots: 24, Value: 100}
	next := uint64(0)
	find := func(fits func(s [2]int) bool) (key uint64, s [2]int) {
		for ; ; next++ {
			if s = shape.SlotsOf(next); fits(s) {
				next++
				return next - 1, s
			}
		}
	}
	first, pair := find(func([2]int) bool { return true })
	in := func(n int) bool { return n == pair[0] || n == pair[1] }
	second, _ := find(func(s [2]int) bool { return in(s[0]) && in(s[1]) })
	added, own := find(func(s [2]int) bool { return in(s[0]) && !in(s[1]) })
	other, _ := find(func(s [2]int) bool { return s[0] == own[1] && !in(s[1]) })
	g := newRig(t, shape)
	g.alone(func(rt verbs.Runtime, c *nictable.Client) error {
		keys := []uint64{first, second, other, added}
		for _, key := range keys {
			if err := c.Insert(key, kv.MakeValue(key, 1, 50), kvtest.Soon(rt)); err != nil {
				t.Errorf("INSERT of key %d, of which the slots are %v: %v", key, shape.SlotsOf(key), err)
			}
		}
		for _, key := range keys {
			v, err := c.Get(key, nil, kvtest.Soon(rt))
			if err == nil {
				_, err = kv.CheckValue(key, v)
			}
			if err != nil {
				t.Errorf("GET of key %d: %v", key, err)
			}
		}
		return nil
	})
}
