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
