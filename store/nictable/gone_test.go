package nictable_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/kvtest"
	"github.com/rdmalab/rdmalab/e2e/verbstest"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/nictable"
)

// Clients that have gone do not fill the server's NIC, whether they crash or close their connections, with and without datagrams for
// connections: the program that had no request for longest makes room for the next client.
//
// A short run has the number of programs that there may be in one case only, and a quarter of it in the others.
func TestProgramsOfClientsThatHaveGone(t *testing.T) {
	const full = nictable.MaxPrograms
	const most = 16 // completion queues of the server beside those of programs
	for _, opt := range []simrack.Options{{}, {Datagrams: true}} {
		for _, crash := range []bool{false, true} {
			programs := full
			if opt.Datagrams || !crash {
				programs = verbstest.Tries(full, full/4)
			}
			clients := programs * 4 / 3 // as many as the NIC has completion queues for, with all programs
			t.Run(fmt.Sprint("datagrams ", opt.Datagrams, " crash ", crash), func(t *testing.T) {
				g := &rig{Rack: kvtest.NewRack(t, "name: nictable\nhosts: [{name: md0, role: metadata}, {name: \"cn[0-1]\", role: compute}]", opt, nil)}
				g.Host("md0").Go("estate", true, func(ctx verbs.Context) {
					var err error
					if g.estate, err = nictable.NewEstate(ctx, nictable.Shape{Items: 300, Value: 64}); err != nil {
						t.Error(err)
						return
					}
					g.estate.SetMost(programs)
					for {
						ctx.Runtime().Sleep(time.Hour)
					}
				})
				var end bool
				g.serve(&end)
				g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
					rt := ctx.Runtime()
					defer func() { end = true }()
					for i := range clients {
						if crash {
							h, opened := g.Host("cn1"), false
							h.Go("client", true, func(ctx verbs.Context) {
								if _, err := g.open(ctx, h.Manager(ctx)); err != nil {
									t.Errorf("client %d: %v", i, err)
								}
								opened = true
								ctx.Runtime().Sleep(time.Hour)
							})
							for !opened {
								rt.Sleep(100 * time.Microsecond)
							}
							h.Crash()
							h.Restart()
							rt.Sleep(10 * time.Millisecond)
						} else {
							c, err := g.open(ctx, m)
							if err != nil {
								t.Errorf("client %d: %v", i, err)
								break
							}
							if err := c.Close(); err != nil {
								return err
							}
							rt.Sleep(time.Millisecond)
						}
						if t.Failed() {
							break
						}
					}
					if o := g.Host("md0").Engine().Tables.Objects(); o.CQs > 6*programs+most {
						t.Errorf("the server's NIC has %d queue pairs, %d completion queues; want those of %d programs", o.QPs, o.CQs, programs)
					}
					return nil
				})
				g.Finish()
			})
		}
	}
}
