package fusee_test

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// A memory server crashes while the memory service of another one hangs, for longer than a change
// of the members should take: the master, or the standby that has taken its place, is in charge
// when the service goes on, and so are clients.
func TestAChangeOutlastsAServiceThatHangs(t *testing.T) {
	for _, dies := range []bool{false, true} {
		x := newThrone(t, 3, 2)
		g := x.g
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			for x.counted == 0 {
				rt.Sleep(time.Millisecond)
			}
			if err := c.Insert(1, kv.MakeValue(1, 1, 100), soon(rt)); err != nil {
				return err
			}
			g.Host("ms1").HangApps()
			g.Host("ms0").Crash()
			if dies {
				g.Host("cn2").CrashApps()
			}
			rt.Sleep(45 * time.Second)
			g.Host("ms1").ResumeApps()
			if err := c.Put(1, kv.MakeValue(1, 2, 100), soon(rt)); err != nil || len(x.ended) > 0 {
				t.Errorf("the master dies: %v; PUT: %v; reigns of %v, ended %v", dies, err, x.reigns, x.ended)
			}
			return nil
		})
		g.run()
	}
}
