package fusee_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/topo/simrack"
)

// master runs a master on a host; ready is set when it has taken charge.
func (g *rig) master(host string, ready *bool) {
	h := g.Host(host)
	h.Go("master", true, func(ctx verbs.Context) {
		cfg := g.config(h, ctx)
		cfg.Lease = 100 * time.Millisecond
		m, err := fusee.OpenMaster(cfg, soon(ctx.Runtime()))
		if *ready = true; err == nil {
			err = m.Run()
		}
		if err != nil && !errors.Is(err, verbs.ErrClosed) && !errors.Is(err, kv.ErrLost) {
			g.t.Error("master:", err)
		}
	})
}

// With a master, every replication factor r survives the crashes of r - 1 memory servers, one after the
// other, the primary of the index among them: what was acknowledged is there, and clients go on. The
// loss of the last replica is reported.
func TestMasterReplacesServersAtEveryReplicationFactor(t *testing.T) {
	for r := 2; r <= 3; r++ {
		for first := range 3 {
			g := newRig(t, 3, simrack.Options{})
			g.format(fusee.FormatConfig{Groups: 8, Replicas: r, IndexReplicas: r, Block: 16 << 10})
			ready, crashed := false, 0
			g.master("cn3", &ready)
			g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
				for !ready {
					rt.Sleep(time.Millisecond)
				}
				for n := range uint64(40) {
					if n%15 == 14 && crashed < r-1 {
						g.Host(fmt.Sprintf("ms%d", (first+crashed)%3)).Crash()
						crashed++
					}
					if err := c.Insert(n, kv.MakeValue(n, 1, 100), soon(rt)); err != nil {
						return fmt.Errorf("%d replicas, insert %d: %w", r, n, err)
					}
					if err := c.Put(n/2, kv.MakeValue(n/2, n+2, 100), soon(rt)); err != nil {
						return fmt.Errorf("%d replicas, put %d: %w", r, n, err)
					}
				}
				for n := range uint64(40) {
					if _, err := c.Get(n, nil, soon(rt)); err != nil {
						return fmt.Errorf("%d replicas, get %d after %d crashes: %w", r, n, crashed, err)
					}
				}
				report, err := c.Audit(soon(rt))
				if err != nil || len(report.Defects) > 0 || report.Keys != 40 || len(report.Members) != 3-crashed {
					t.Errorf("%d replicas, crashes from %d: %+v, %v", r, first, report, err)
				}
				g.Host(fmt.Sprintf("ms%d", (first+crashed)%3)).Crash() // of some object, this was the last replica
				for end := soon(rt); err == nil && rt.Now() < end; rt.Sleep(10 * time.Millisecond) {
					_, err = c.Get(1, nil, soon(rt))
				}
				if want := [...]error{2: kv.ErrLost, 3: kv.ErrTimeout}[r]; !errors.Is(err, want) { // with 3 replicas, no server remains that could say so
					t.Errorf("%d replicas, all of something lost: %v, want %v", r, err, want)
				}
				return nil
			})
			g.run()
		}
	}
}
