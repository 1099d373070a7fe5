package nictable_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/kvtest"
	"github.com/rdmalab/rdmalab/rackfile/costs"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/nictable"
)

// The NIC answers a client as many GETs a second as the limit says, and another client, which connected without a limit,
// as many as before; with NICs that take no time for an entry, and with those that take what hardware does.
func TestLimitOfGets(t *testing.T) {
	const rate, gets = 20_000, 400
	for _, paced := range []bool{false, true} {
		t.Run(fmt.Sprint("paced ", paced), func(t *testing.T) {
			opt := simrack.Options{}
			if paced {
				model, err := costs.Builtin("connectx5")
				if err != nil {
					t.Fatal(err)
				}
				opt.Cost = model
			}
			g := &rig{Rack: kvtest.NewRack(t, "name: nictable\nhosts: [{name: md0, role: metadata}, {name: \"cn[0-1]\", role: compute}]", opt, nil)}
			g.replace(nictable.Shape{Items: 8, Value: 64})
			var end bool
			g.serve(&end)
			g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
				rt := ctx.Runtime()
				took := func(c *nictable.Client) time.Duration {
					begin := rt.Now()
					for range gets {
						if _, err := c.Get(7, nil, kvtest.Soon(rt)); err != nil {
							t.Error(err)
						}
					}
					return rt.Now().Sub(begin)
				}
				free, err := g.open(ctx, m)
				if err != nil {
					return err
				}
				if err := free.Insert(7, make([]byte, 64), kvtest.Soon(rt)); err != nil {
					return err
				}
				before := took(free)
				g.estate.Limit(rate)
				slow, err := g.open(ctx, m)
				if err != nil {
					return err
				}
				want := gets * time.Second / rate
				if d := took(slow); d < want*97/100 || d > want*105/100 {
					t.Errorf("%d GETs of a client with a limit of %d a second took %v, want %v", gets, rate, d, want)
				}
				if d := took(free); before > want/2 || d > before*11/10 {
					t.Errorf("%d GETs of a client without limit took %v, before %v", gets, d, before)
				}
				end = true
				return errors.Join(free.Close(), slow.Close())
			})
			g.Finish()
		})
	}
}
