package clover_test

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A memory server that is slow, or has less room, takes fewer of the new keys; without Balance it
// takes as many as the others.
func TestSlowAndFullServersTakeLess(t *testing.T) {
	const keys, lease = 240, 40 * time.Millisecond
	for _, replicas := range []int{1, 2} {
		for _, balance := range []bool{false, true} {
			g := newRigOf(t, threeServers, simrack.Options{}, meta.Config{
				Format: layout.Hardened, Keys: 600, Shares: [layout.Classes]int{1}, Lease: lease, Grace: lease, Balance: balance, Replicas: replicas,
			}, 48<<10*replicas)
			g.clientOf("cn0", clover.Config{Batch: 1}, func(c *clover.Client, rt verbs.Runtime) error {
				insert := func(from, n int) (on [3]int, at []int, err error) {
					for k := range n {
						if err := c.Insert(uint64(from+k), value(uint64(k), 0, 40), soon(rt)); err != nil {
							return on, at, err
						}
						on[c.Placed()]++
						at = append(at, c.Placed())
					}
					return on, at, nil
				}
				rt.Sleep(2 * lease)
				even, at, err := insert(0, keys)
				if err != nil {
					return err
				}
				for k, i := range at {
					if i != 0 {
						if err := c.Delete(uint64(k), soon(rt)); err != nil {
							return err
						}
					}
				}
				rt.Sleep(10 * lease)
				full, at, err := insert(1000, keys)
				if err != nil {
					return err
				}
				for k := range at {
					if err := c.Delete(uint64(1000+k), soon(rt)); err != nil {
						return err
					}
				}
				g.At(rt.Now(), func() {
					g.Host("ms1").SetFaults([]fault.Rule{{Link: "ms1", Kind: fault.Delay, Delay: 100 * time.Microsecond}})
				})
				rt.Sleep(10 * lease)
				slow, _, err := insert(2000, keys/3)
				t.Logf("%d copies, balance %v: at first %v, ms0 has less room %v, ms1 is slow %v", replicas, balance, even, full, slow)
				for i, n := range even {
					if n < keys/3-5 || n > keys/3+5 {
						t.Errorf("server %d takes %d of %d", i, n, keys)
					}
				}
				if less := full[0] < full[1]-10 && full[0] < full[2]-10; less != balance {
					t.Errorf("%d copies, balance %v: ms0 has less room, and takes %v", replicas, balance, full)
				}
				if less := slow[1] < slow[2]/4; less != balance {
					t.Errorf("%d copies, balance %v: ms1 is slow, and takes %v", replicas, balance, slow)
				}
				g.At(rt.Now(), func() { g.Host("ms1").SetFaults(nil) })
				return err
			})
			g.run()
		}
	}
}
