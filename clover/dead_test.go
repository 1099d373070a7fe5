package clover_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// recovery is how much longer than lease and grace the recovery of a dead client's nodes takes: the
// wait for the next call of Server.keep, and the READs of the nodes' headers.
const recovery = 50 * time.Millisecond

// Everything that a dead client held is recovered after its lease and grace: nodes that it was
// given, nodes that it has written and not linked, and appends that it did not report. No node is
// lost: in the end all nodes are free except the newest node of each key.
func TestNodesOfDeadClientsAreRecovered(t *testing.T) {
	const lease, grace, keys = 20 * time.Millisecond, 10 * time.Millisecond, 3
	for i := range 8 {
		g := newRig(t, simrack.Options{Seed: uint64(i)}, meta.Config{Lease: lease, Grace: grace, Keys: 16}, 1<<18)
		// After two leases, at a time within a PUT, which takes about 5 µs.
		dies := clock.Time(2*lease) + clock.Time(time.Duration(i)*700*time.Nanosecond)
		g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
			for n := 0; ; n++ {
				key := uint64(n % keys)
				value := []byte(fmt.Sprint(n))
				if n < keys {
					if err := c.Insert(key, value, soon(rt)); err != nil {
						return err
					}
					continue
				}
				if err := c.Put(key, value, soon(rt)); err != nil {
					return err
				}
			}
		})
		g.At(dies, func() { g.Host("cn0").CrashApps() })
		var back clock.Time
		for d := time.Duration(0); d < time.Second; d += time.Millisecond {
			at := dies.Add(d)
			g.At(at, func() {
				if st := g.server.Snapshot(); st.Held == 0 && st.Linked == st.Keys && st.Keys == keys && back == 0 {
					back = at
				}
			})
		}
		g.run()
		if err := g.Settle(2 * time.Second); err != nil {
			t.Fatal(err)
		}
		st := g.server.Snapshot()
		if took := back.Sub(dies); back == 0 || took > lease+grace+recovery {
			t.Errorf("client that died at %v: its nodes were back %v later, want %v; %+v", dies, took, lease+grace+recovery, st)
		} else {
			t.Logf("client that died at %v: its nodes were back %v later", dies, took)
		}
		if st.Broken > 0 || st.Held > 0 || st.Linked != keys {
			t.Errorf("client that died at %v: %+v", dies, st)
		}
	}
}
