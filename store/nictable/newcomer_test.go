package nictable_test

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/kvtest"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/nictable"
)

// Clients that live read for three seconds, which needs no call of the server's process. One more client comes. At most one of the others
// loses its connection for calls.
func TestOneNewcomer(t *testing.T) {
	const clients = 256
	g := newRig(t, nictable.Shape{Items: 300, Value: 64})
	var end bool
	g.serve(&end)
	g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
		rt := ctx.Runtime()
		var list []*nictable.Client
		for i := range clients {
			c, err := g.open(ctx, m)
			if err != nil {
				t.Fatalf("client %d: %v", i, err)
			}
			list = append(list, c)
		}
		if err := list[0].Insert(1, kv.MakeValue(1, 1, 30), kvtest.Soon(rt)); err != nil {
			t.Fatal(err)
		}
		for range 30 {
			for _, c := range list {
				if _, err := c.Get(1, nil, kvtest.Soon(rt)); err != nil {
					t.Fatal(err)
				}
			}
			rt.Sleep(100 * time.Millisecond)
		}
		extra, err := g.open(ctx, m)
		if err != nil {
			t.Fatal("the newcomer:", err)
		}
		_ = extra
		failed := 0
		var why error
		for _, c := range list {
			if err := c.Put(1, kv.MakeValue(1, 2, 30), kvtest.Soon(rt)); err != nil {
				failed, why = failed+1, err
			}
		}
		if failed > 1 {
			t.Errorf("one newcomer: %d of %d clients that live have a PUT that failed: %v", failed, clients, why)
		}
		end = true
		return nil
	})
	g.Finish()
}
