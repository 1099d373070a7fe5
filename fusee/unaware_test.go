package fusee_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// A client has done nothing since a master has begun, and does not know of it. One server has come back
// empty, and the other one does not answer for a moment: the store is not lost. Without a master it is, when
// the other server shows that.
func TestAClientThatDoesNotKnowOfTheMasterReportsNoLoss(t *testing.T) {
	for n := range 4 {
		mastered, victim, other := n < 2, n%2, 1-n%2
		g := newRig(t, 2, simrack.Options{})
		g.format(fusee.FormatConfig{Groups: 4, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			if err := c.Insert(1, kv.MakeValue(1, 1, 100), soon(rt)); err != nil {
				return err
			}
			var m *fusee.Master
			var ended error
			ready := !mastered
			if mastered {
				g.keep("cn3", 2*time.Second, &ready, &m, &ended)
			}
			for !ready {
				rt.Sleep(time.Millisecond)
			}
			g.Host(fmt.Sprintf("ms%d", other)).SetLink(false)
			g.Host(fmt.Sprintf("ms%d", victim)).Crash()
			g.restart(victim)
			err := c.Put(1, kv.MakeValue(1, 2, 100), rt.Now().Add(4*time.Second))
			if !errors.Is(err, kv.ErrTimeout) || errors.Is(err, kv.ErrLost) {
				t.Errorf("PUT while no server shows who the members are: %v", err)
			}
			g.Host(fmt.Sprintf("ms%d", other)).SetLink(true)
			err = c.Put(1, kv.MakeValue(1, 3, 100), rt.Now().Add(time.Minute))
			if mastered != (err == nil) || !mastered && !errors.Is(err, kv.ErrLost) || ended != nil {
				t.Errorf("a master: %v; PUT %v; the master ends with %v", mastered, err, ended)
			}
			return nil
		})
		g.run()
	}
}
