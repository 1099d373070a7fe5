package nictable_test

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/kvtest"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/nictable"
)

// When the server's NIC crashes, a GET ends with the status for that, and a change with an unknown
// outcome. The table is gone: the next one is empty, at another address, and clients use it by
// themselves.
func TestNICCrashes(t *testing.T) {
	g := newRig(t, nictable.Shape{Items: 8, Value: 100})
	end := new(bool)
	g.serve(end)
	g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
		rt, h := ctx.Runtime(), g.Host("md0")
		c, err := g.open(ctx, m)
		if err != nil {
			return err
		}
		if err := c.Insert(7, kv.MakeValue(7, 1, 50), kvtest.Soon(rt)); err != nil {
			return err
		}
		h.EndProcesses()
		h.CrashNIC()
		_, err = c.Get(7, nil, rt.Now().Add(2*time.Second))
		var failed *remotemem.OpError
		if !errors.Is(err, kv.ErrTimeout) || !errors.Is(err, kv.ErrNoEffect) || !errors.As(err, &failed) || failed.Status != verbs.RetryExcErr {
			t.Errorf("GET: %v, want a time-out with %v", err, verbs.RetryExcErr)
		}
		if err := c.Put(7, kv.MakeValue(7, 2, 50), rt.Now().Add(2*time.Second)); !errors.Is(err, kv.ErrTimeout) {
			t.Errorf("PUT: %v, want a time-out", err)
		}
		h.RestartNIC()
		h.Go("estate", true, func(ctx verbs.Context) {
			pd, err := ctx.AllocPD()
			if err == nil {
				_, err = pd.RegMR(nil, 1<<16, verbs.LocalWrite) // in front of the table
			}
			if err != nil {
				t.Error(err)
			}
			if g.estate, err = nictable.NewEstate(ctx, nictable.Shape{Items: 8, Value: 100}); err != nil {
				t.Error(err)
			}
			for {
				ctx.Runtime().Sleep(time.Hour)
			}
		})
		rt.Sleep(time.Millisecond)
		end = new(bool)
		g.serve(end)
		if _, err := c.Get(7, nil, kvtest.Soon(rt)); !errors.Is(err, kv.ErrNotFound) {
			t.Errorf("GET from the next table: %v", err)
		}
		if err := c.Insert(7, kv.MakeValue(7, 3, 50), kvtest.Soon(rt)); err != nil {
			return err
		}
		v, err := c.Get(7, nil, kvtest.Soon(rt))
		if n, _ := kv.CheckValue(7, v); n != 3 || err != nil {
			t.Errorf("GET: value %d, %v", n, err)
		}
		*end = true
		return c.Close()
	})
	g.Finish()
}

// Items of values that were replaced or deleted are used again, however often.
func TestItemsAreUsedAgain(t *testing.T) {
	g := newRig(t, nictable.Shape{Items: 2, Value: 100})
	var end bool
	g.serve(&end)
	g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
		rt := ctx.Runtime()
		c, err := g.open(ctx, m)
		if err != nil {
			return err
		}
		for n := range uint64(20) {
			if err := c.Insert(n, kv.MakeValue(n, 1, 50), kvtest.Soon(rt)); err != nil {
				t.Errorf("INSERT %d: %v", n, err)
			}
			for i := range uint64(5) {
				if err := c.Put(n, kv.MakeValue(n, 2+i, 50), kvtest.Soon(rt)); err != nil {
					t.Errorf("PUT %d of key %d: %v", i, n, err)
				}
			}
			if err := c.Delete(n, kvtest.Soon(rt)); err != nil {
				t.Errorf("DELETE %d: %v", n, err)
			}
		}
		end = true
		return c.Close()
	})
	g.Finish()
}

// A process has ended while it moved a key. The next one empties one of the two slots, and counts
// that as a move: a GET may have looked into the other slot before the key came there.
func TestProcessEndsInAMove(t *testing.T) {
	g := newRig(t, nictable.Shape{Items: 8, Value: 100})
	g.alone(func(rt verbs.Runtime, c *nictable.Client) error {
		if err := c.Insert(7, kv.MakeValue(7, 1, 50), kvtest.Soon(rt)); err != nil {
			return err
		}
		before, after, slots, err := g.server.TakeInMove(7)
		if err != nil || after <= before || slots != 1 {
			t.Errorf("%d moves, and then %d; %d slots have the key; %v", before, after, slots, err)
		}
		return nil
	})
}
