package clover_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The metadata server is restarted, and then the NICs of the memory servers crash and come back, as in topo/hostd: the memory survives,
// and so does the table of the clients that were fenced. A client of the former metadata server has a lease and nodes that belong to
// another client by now. It must not write into them: if the services forgot their fences, acknowledged values would be lost.
func TestAClientOfAnEarlierServerAfterNICsRestart(t *testing.T) {
	for replicas := 1; replicas <= 3; replicas++ {
		oldClient(t, replicas)
	}
}

// nicsRestart crashes the NICs of all memory servers and starts them again. Their memory and its fences survive.
func (y *deposed) nicsRestart() {
	for _, name := range []string{"ms0", "ms1", "ms2"} {
		h, b := y.Host(name), y.lent[name]
		h.Crash()
		h.Restart()
		h.Go("memory", true, func(ctx verbs.Context) {
			s, err := memservice.New(ctx, h.Manager(ctx), memservice.Config{Buffer: b, Owners: y.owners[name]})
			if err == nil {
				_ = s.Serve()
			}
		})
	}
}

func oldClient(t *testing.T, replicas int) {
	const last = 20 // the key that the client of the former metadata server writes
	cfg := meta.Config{Format: layout.Hardened, Keys: 64, Replicas: replicas, Lease: 20 * time.Second, Grace: 200 * time.Millisecond}
	y := &deposed{&copyStory{newRigOf(t, threeServers, simrack.Options{}, cfg, 96<<10), map[uint64][]byte{}}}
	y.Host("cn0").Go("story", false, func(ctx verbs.Context) {
		rt, h := ctx.Runtime(), y.Host("cn0")
		c, err := clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: y.Host("md0").Addr()}, soon(rt))
		if err == nil {
			err = y.write(c, rt, 1)
		}
		for n := 0; n < 2 && err == nil; n++ { // now it has nodes for further PUTs of this key
			err = c.Put(last, y.want[last], soon(rt))
		}
		if err != nil {
			t.Error(err)
			return
		}
		y.first(rt, 0)
		y.nicsRestart()
		done := false
		y.with("cn1", "md0", func(c *clover.Client, rt verbs.Runtime) error {
			for n := range 1000 { // uses all nodes
				for key := uint64(1); key < last; key++ {
					y.want[key] = value(key, n%200+5, 40)
					if err := c.Put(key, y.want[key], soon(rt)); err != nil {
						return err
					}
				}
			}
			return nil
		}, &done)
		await(rt, &done)
		for n := range 7 {
			y.want[last] = value(last, n, 40)
			if err := c.Put(last, y.want[last], soon(rt)); err != nil {
				t.Errorf("%d copies: PUT %d: %v", replicas, n, err)
			}
		}
		done = false
		y.with("cn1", "md0", func(c *clover.Client, rt verbs.Runtime) error {
			for key := uint64(1); key <= last; key++ {
				if v, err := c.Get(key, nil, soon(rt)); err != nil || !bytes.Equal(v, y.want[key]) {
					t.Errorf("%d copies: GET of key %d: %.10q, %v; want %.10q", replicas, key, v, err, y.want[key])
				}
			}
			return nil
		}, &done)
		await(rt, &done)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	y.run()
}
