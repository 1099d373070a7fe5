package insim

import (
	"flag"
	"runtime"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/audit"
	"github.com/rdmalab/rdmalab/sherman/check"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

var largeKeys = flag.Uint64("tree.keys", 100_000, "keys of the tree that is loaded and checked")

// A large tree is loaded over the network and read completely. -tree.keys 10000000 takes minutes
// and a few GiB of memory.
func TestLoadAndCheck(t *testing.T) {
	began := time.Now()
	region := int(*largeKeys)*80 + 8<<20 // pages of 1 KiB hold some 20 keys with values of 16 bytes
	r := &treeRun{load: experiment.Sherman{Keys: *largeKeys, Seed: 1}, count: 2, value: 16, region: region / 2}
	if err := r.build(t.Context(), simrack.Options{}); err != nil {
		t.Fatal(err)
	}
	defer r.rack.Close()
	var rep *check.Report
	h := r.rack.Host("cn1")
	h.Go("check", false, func(ctx verbs.Context) {
		for !r.ready {
			ctx.Runtime().Sleep(time.Millisecond)
		}
		loaded := time.Since(began)
		c, err := r.nodes[1].Open(sherman.Config{Context: ctx, Manager: h.Manager(ctx)}, clock.Never)
		var cfg check.Config
		if err == nil {
			cfg, err = audit.Config(c, clock.Never)
		}
		if err == nil {
			cfg.Want = new(check.Content)
			for k := range *largeKeys {
				cfg.Want.Add(k)
			}
			rep, err = check.Check(cfg)
		}
		r.rack.Stop(err)
		t.Logf("loaded in %v, checked in %v", loaded, time.Since(began)-loaded)
	})
	if err := r.rack.Run(); err != nil {
		t.Fatal(err)
	}
	if rep == nil || rep.Err() != nil || rep.Content.Keys != *largeKeys {
		t.Fatalf("%v: %v", rep, rep.Err())
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("%v; %v of virtual time, %d MiB from the system", rep, r.rack.Now(), m.Sys>>20)
}
