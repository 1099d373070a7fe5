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

// All blocks that a client has used were on a server that crashes; it closes. The block that it has
// requested ahead on another server must be left.
func TestCloseWithOnlyABlockAhead(t *testing.T) {
	for victim := range 3 {
		for _, ahead := range []int{-1, 0} {
			t.Run(fmt.Sprintf("ms%d/%d", victim, ahead), func(t *testing.T) {
				g := newRig(t, 3, simrack.Options{})
				g.format(fusee.FormatConfig{Groups: 40, Replicas: 2, IndexReplicas: 3, Block: 16 << 10})
				g.ahead = ahead
				var m *fusee.Master
				var ended error
				ready, done := false, false
				g.keep("cn3", begun, &ready, &m, &ended)
				g.taking(func(n int, next func() ([]byte, error)) ([]byte, error) { return next() }, func(c *fusee.Client, rt verbs.Runtime) error {
					for !ready {
						rt.Sleep(time.Millisecond)
					}
					defer func() { done = true }()
					for key := range uint64(40) {
						if err := c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt)); err != nil {
							return err
						}
					}
					rt.Sleep(10 * time.Millisecond)
					g.Host(fmt.Sprintf("ms%d", victim)).Crash()
					rt.Sleep(time.Second)
					_, err := c.Get(1, nil, soon(rt))
					return err
				})
				g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
					for !done {
						rt.Sleep(time.Millisecond)
					}
					rt.Sleep(3 * time.Second)
					out, err := c.Audit(soon(rt))
					if err != nil || len(out.Owners) > 0 {
						t.Errorf("%+v %v", out, err)
					}
					return nil
				})
				g.run()
			})
		}
	}
}
