package clover_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// puts is the number of PUTs of TestSmallPool: go test ./clover -run SmallPool -timeout 0 -v -args
// -puts 10000000
var puts = flag.Int("puts", 20_000, "how many PUTs TestSmallPool makes")

const poolRack = `
name: pool
switch: {program: swordbox, rules: [{server: ms0, action: steer, steer: both}]}
hosts:
  - {name: md0, role: metadata}
  - {name: ms0, role: memory}
  - {name: "cn[0-3]", role: compute}
`

// Many PUTs on four nodes a key, behind a switch that steers: every node is reused through all its
// versions again and again, and no client finds the store full.
func TestSmallPool(t *testing.T) {
	const keys, clients = 1024, 16
	s, err := rackfile.Parse([]byte(poolRack))
	if err != nil {
		t.Fatal(err)
	}
	r, err := simrack.New(s, simrack.Options{Seed: 1, Datagrams: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	bare := layout.Space{Servers: 1, Shortcuts: keys}
	region := bare.RegionLen() + 4*keys*layout.MinSlab
	ms, md := r.Host("ms0"), r.Host("md0")
	ms.Go("memory", true, func(ctx verbs.Context) {
		s, err := memservice.New(ctx, ms.Manager(ctx), memservice.Config{Region: region})
		if err == nil {
			err = s.Serve()
		}
		r.Stop(err)
	})
	var server *meta.Server
	md.Go("meta", true, func(ctx verbs.Context) {
		s, err := meta.New(meta.Config{
			Context: ctx, Manager: md.Manager(ctx), Servers: []netip.Addr{ms.Addr()}, Format: layout.Hardened, Keys: keys,
			Shares: [layout.Classes]int{1}, Lease: 100 * time.Millisecond, Grace: 100 * time.Millisecond,
		})
		if err == nil {
			server = s
			err = s.Serve()
		}
		r.Stop(err)
	})
	began, done, steered := time.Now(), 0, 0
	logged := began
	worker := func(id int, c *clover.Client, rt verbs.Runtime) error {
		for k := uint64(id); k < keys; k += clients {
			if err := c.Insert(k, kv.MakeValue(k, 0, kv.MinValue), soon(rt)); err != nil {
				return err
			}
		}
		rt.Sleep(time.Millisecond)
		z, draw := kv.NewZipf(keys, 0.99), rand.New(rand.NewPCG(uint64(id), 1))
		for n := uint64(1); done < *puts; n++ {
			k := z.Next(draw)
			if err := c.Put(k, kv.MakeValue(k, uint64(id)<<40|n, kv.MinValue), soon(rt)); err != nil {
				return fmt.Errorf("PUT %d: %w", done, err)
			}
			if done++; c.Last().FirstTry() {
				steered++
			}
			if time.Since(logged) > time.Minute {
				logged = time.Now()
				t.Logf("%v: %d PUTs", logged.Sub(began).Round(time.Second), done)
			}
		}
		return nil
	}
	for id := range clients {
		h := r.Host(fmt.Sprintf("cn%d", id%4))
		h.Go("client", false, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			c, err := clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: md.Addr()}, soon(rt))
			if err == nil {
				err = errors.Join(worker(id, c, rt), c.Close())
			}
			if err != nil {
				t.Errorf("client %d: %v", id, err)
			}
		})
	}
	if err := errors.Join(r.Run(), r.Settle(time.Second)); err != nil {
		t.Fatal(err)
	}
	st := server.Snapshot()
	t.Logf("%d PUTs in %v (%v of virtual time), %.2f%% first try, epoch %d: %+v", done, time.Since(began).Round(time.Millisecond), r.Now(),
		100*float64(steered)/float64(done), st.Epoch, st)
	if st.Linked != keys || st.Held != 0 || st.Broken != 0 {
		t.Errorf("%d nodes in chains of %d keys, %d held, %d chains broken", st.Linked, keys, st.Held, st.Broken)
	}
}
