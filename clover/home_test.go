package clover_test

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The chain of a key and its shortcut stay on one memory server while there are free nodes: a
// writer of a key needs no other server. Keys spread over the servers. When a server has no free
// nodes, its chains continue on other servers.
func TestChainsStayOnTheirServers(t *testing.T) {
	const keys, puts, size = 16, 40, 40
	g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 64, Shares: [layout.Classes]int{1}}, 32<<10)
	counts := func() (n [2]uint64) {
		for i, name := range []string{"ms0", "ms1"} {
			c := g.Host(name).Counters()
			n[i] = c.RxAtomicRequests
		}
		return n
	}
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		homes := [2]int{}
		for k := range uint64(keys) {
			if err := c.Insert(k, value(k, 0, size), soon(rt)); err != nil {
				return err
			}
		}
		for k := range uint64(keys) {
			before := counts()
			for n := range puts {
				if err := c.Put(k, value(k, n, size), soon(rt)); err != nil {
					return err
				}
			}
			after := counts()
			switch a, b := after[0]-before[0], after[1]-before[1]; {
			case a == puts && b == 0:
				homes[0]++
			case a == 0 && b == puts:
				homes[1]++
			default:
				t.Errorf("%d appends to key %d went to one server, %d to the other", a, k, b)
			}
		}
		if homes[0] != homes[1] {
			t.Errorf("keys on the servers: %v", homes)
		}
		return nil
	})
	g.run()
}
