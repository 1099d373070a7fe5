package clover_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// A metadata server hangs, another one takes over, and then the NICs of the memory servers crash and come back: their memory
// survives, and the services forget which numbers they had retired. The first one goes on and must see that it
// is deposed: it answers nothing from its tables and inserts nothing.
func TestDeposedServerAfterNICsRestart(t *testing.T) {
	for replicas := 1; replicas <= 3; replicas++ {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) { deposedAfterNICs(t, replicas) })
	}
}

func deposedAfterNICs(t *testing.T, replicas int) {
	cfg := meta.Config{Format: layout.Hardened, Keys: 64, Replicas: replicas, Lease: 200 * time.Millisecond, Grace: 200 * time.Millisecond}
	y := &deposed{&copyStory{newRigOf(t, threeServers, simrack.Options{}, cfg, region), map[uint64][]byte{}}}
	md0 := y.Host("md0")
	y.Host("cn0").Go("story", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		y.first(rt, 0)
		md0.HangAll()
		y.takeOver(rt, 1)
		for _, n := range []string{"ms0", "ms1", "ms2"} { // with one memory server, one NIC is enough
			h := y.Host(n)
			h.Crash()
			h.Restart()
			h.Go("memory", true, func(ctx verbs.Context) {
				s, err := memservice.New(ctx, h.Manager(ctx), memservice.Config{Buffer: y.lent[n]})
				if err == nil {
					_ = s.Serve()
				}
			})
		}
		done := false
		y.with("cn1", "cn2", func(c *clover.Client, rt verbs.Runtime) error { return y.write(c, rt, 2) }, &done)
		await(rt, &done)
		t.Logf("%v: the other one serves", rt.Now())
		md0.ResumeAll()
		rt.Sleep(3 * time.Second)
		h := y.Host("cn0")
		c, err := clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: md0.Addr()}, soon(rt))
		if err != nil {
			t.Log("md0 does not serve:", err)
			return
		}
		v, err := c.Get(7, nil, soon(rt))
		if errors.Is(err, kv.ErrTimeout) {
			return // md0 has ended
		}
		t.Errorf("%v: a client of the deposed one: GET of an acknowledged key: %.10q, %v; want %.10q", rt.Now(), v, err, y.want[7])
		if err := c.Insert(7, value(7, 9, 40), soon(rt)); err == nil {
			t.Error("it inserts the key")
		}
		if err := c.Insert(33, value(33, 9, 40), soon(rt)); err == nil {
			t.Error("it inserts another key")
		}
		done = false
		y.with("cn1", "cn2", func(c *clover.Client, rt verbs.Runtime) error {
			v, err := c.Get(33, nil, soon(rt))
			t.Logf("the other one says of the other key: %.10q %v", v, err)
			lost, err := y.read(c, rt)
			t.Logf("the other one: %d keys lost, %v", lost, err)
			return nil
		}, &done)
		await(rt, &done)
		_ = c.Close()
	})
	y.run()
}
