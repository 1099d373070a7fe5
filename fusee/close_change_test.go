package fusee_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// A client closes when the members have changed and it has not noticed: it leaves its blocks.
func TestCloseAfterAChangeOfTheMembers(t *testing.T) {
	for victim := range 3 {
		for _, wait := range []time.Duration{0, 30 * time.Millisecond, time.Second} {
			t.Run(fmt.Sprintf("ms%d/%v", victim, wait), func(t *testing.T) {
				g := newRig(t, 3, simrack.Options{})
				g.format(fusee.FormatConfig{Groups: 40, Replicas: 2, IndexReplicas: 3, Block: 16 << 10})
				var m *fusee.Master
				var ended error
				ready, done := false, false
				g.keep("cn3", 100*time.Millisecond, &ready, &m, &ended)
				g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
					for !ready {
						rt.Sleep(time.Millisecond)
					}
					defer func() { done = true }()
					for key := range uint64(150) {
						if err := c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt)); err != nil {
							return err
						}
					}
					g.Host(fmt.Sprintf("ms%d", victim)).Crash()
					rt.Sleep(wait)
					return nil
				})
				g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
					for !done {
						rt.Sleep(time.Millisecond)
					}
					rt.Sleep(4 * time.Second) // less than the lease of clients
					out, err := c.Audit(soon(rt))
					if err != nil || len(out.Owners) > 0 || len(out.Defects) > 0 {
						t.Errorf("%+v %v", out, err)
					}
					return nil
				})
				g.run()
			})
		}
	}
}
