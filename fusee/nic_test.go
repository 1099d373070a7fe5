package fusee_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// serveKept is serve with a table of owners that outlives the service, as the host's memory does.
func (g *rig) serveKept(i int, owners *memservice.Owners) {
	h := g.Host(fmt.Sprintf("ms%d", i))
	h.Go("memory", true, func(ctx verbs.Context) {
		s, err := memservice.New(ctx, h.Manager(ctx), memservice.Config{Buffer: g.memory[i], Owners: owners})
		if err == nil {
			err = s.Serve()
		}
		if err != nil && !errors.Is(err, verbs.ErrClosed) {
			g.t.Error(h.Spec.Name, err)
		}
	})
}

// The NIC of a memory server crashes and is back long before the master's lease has passed. The
// memory has remained: the master was not replaced by another one, and loses no store. With one
// replica, the server remains a member; with two, it becomes one again. Clients go on, with their
// blocks, and one that was fenced does not.
func TestTheNICOfAMemberRestarts(t *testing.T) {
	for _, replicas := range []int{1, 2} {
		for victim := range 2 {
			for _, standby := range []bool{false, true} {
				t.Run(fmt.Sprint(replicas, " replicas, ms", victim, ", standby ", standby), func(t *testing.T) {
					g := newRig(t, 2, simrack.Options{})
					x := &throne{g: g, ended: map[string]error{}}
					var owners [2]memservice.Owners
					for i := range owners {
						g.Host(fmt.Sprintf("ms%d", i)).Crash()
						g.Host(fmt.Sprintf("ms%d", i)).Restart()
						g.serveKept(i, &owners[i])
					}
					g.format(fusee.FormatConfig{Groups: 4, Replicas: replicas, IndexReplicas: replicas, Block: 16 << 10})
					x.run("cn2", false)
					if standby {
						x.run("cn3", true)
					}
					report := fusee.Report{}
					g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
						for !x.ready || standby && x.counted == 0 {
							rt.Sleep(time.Millisecond)
						}
						for key := range uint64(20) {
							if err := c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt)); err != nil {
								return err
							}
						}
						for n := uint64(2); n < 5; n++ {
							h := g.Host(fmt.Sprintf("ms%d", victim))
							h.Crash()
							rt.Sleep(5 * time.Millisecond)
							h.Restart()
							g.serveKept(victim, &owners[victim])
							for key := range uint64(20) {
								if err := c.Put(key, kv.MakeValue(key, n, 100), soon(rt)); err != nil {
									return fmt.Errorf("PUT %d: %w", n, err)
								}
							}
							if err := g.all(rt); err != nil {
								return err
							}
							for key := range uint64(20) {
								v, err := c.Get(key, nil, soon(rt))
								if got, bad := kv.CheckValue(key, v); err != nil || bad != nil || got != n {
									return fmt.Errorf("GET %d: %d, want %d: %w", key, got, n, errors.Join(err, bad))
								}
							}
						}
						var err error
						report, err = c.Audit(soon(rt))
						return err
					})
					g.run()
					if len(x.ended) > 0 || len(x.reigns) != 1 || len(report.Defects) > 0 || report.Keys != 20 {
						t.Errorf("reigns of %v, ended %v, %+v", x.reigns, x.ended, report)
					}
				})
			}
		}
	}
}
