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

// A memory server crashes, and shortly before or after that so does the switch, for some leases of the
// master. The server comes back empty meanwhile, or later. The other one was only separated: the store is not
// lost, whichever of the two the master asks first, and the value is there.
func TestAnOutageOfTheSwitchLosesNoStore(t *testing.T) {
	for _, victim := range []int{0, 1} {
		for _, after := range []time.Duration{-time.Millisecond, time.Millisecond, begun / 2, begun} {
			for _, back := range []time.Duration{begun, 3 * begun, 6 * begun} {
				t.Run(fmt.Sprintf("ms%d/%v/%v", victim, after, back), func(t *testing.T) {
					g := newRig(t, 2, simrack.Options{})
					g.format(fusee.FormatConfig{Groups: 4, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
					var m *fusee.Master
					var ended error
					ready := false
					g.keep("cn3", begun, &ready, &m, &ended)
					g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
						for !ready {
							rt.Sleep(time.Millisecond)
						}
						if err := c.Insert(1, kv.MakeValue(1, 1, 100), soon(rt)); err != nil {
							return err
						}
						crash := rt.Now().Add(5 * time.Millisecond)
						g.At(crash, g.Host(fmt.Sprintf("ms%d", victim)).Crash)
						g.At(crash.Add(back), func() { g.restart(victim) })
						g.At(crash.Add(after), g.CrashSwitch)
						g.At(crash.Add(after+4*begun), func() {
							if err := g.RestartSwitch(); err != nil {
								t.Error(err)
							}
						})
						rt.Sleep(7 * begun)
						if err := g.all(rt); err != nil {
							t.Errorf("%v; the master ends with %v", err, ended)
						}
						v, err := c.Get(1, nil, soon(rt))
						if n, e := kv.CheckValue(1, v); err == nil && (e != nil || n != 1) {
							t.Errorf("value %d, want 1: %v", n, e)
						}
						return err
					})
					g.run()
				})
			}
		}
	}
}
