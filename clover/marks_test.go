package clover_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Three copies: ms1 goes out, then keys are inserted, then ms2 goes out. The superblock of ms1 says so,
// that of ms2 does not. ms0 loses its memory together with the metadata server. The next one dies at each
// of its WRITEs once, and restarts again. The keys that only the old records of ms2 name stay lost.
func TestALossIsKnownByRecordsThatAreNotMarked(t *testing.T) {
	for k, died := 1, true; died; k++ {
		if died = unmarkedRecords(t, k); t.Failed() || k == 1 && !died {
			t.Fatalf("the restarted metadata server died at its WRITE %d: %v", k, died)
		}
	}
}

func unmarkedRecords(t *testing.T, k int) (died bool) {
	const lease, late = 200 * time.Millisecond, uint64(21)
	x := &filter{}
	cfg := meta.Config{Format: layout.Hardened, Keys: 64, Replicas: 3, Lease: lease, Grace: lease}
	y := &copyStory{newRigOf(t, threeServers, x.options(), cfg, region), map[uint64][]byte{}}
	y.again = true
	y.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		away := func(n uint64) {
			for y.server.Snapshot().Away != n {
				rt.Sleep(time.Millisecond)
			}
		}
		if err := y.write(c, rt, 1); err != nil {
			return err
		}
		md0, ms0, ms1, ms2 := y.Host("md0"), y.Host("ms0"), y.Host("ms1"), y.Host("ms2")
		ms1.HangAll()
		away(1)
		if err := c.Insert(late, value(late, 1, 40), soon(rt)); err != nil {
			return err
		}
		ms2.HangAll()
		away(2)
		ms0.HangAll()
		ms0.Resume() // its NIC, but not the service: ms1 is not filled
		ms1.ResumeAll()
		rt.Sleep(5 * lease)
		away(2)
		md0.Crash()
		ms0.Crash()
		ms2.ResumeAll()
		ms0.Restart()
		y.memory("ms0")
		x.diesAt(y.rig, k, &died)
		y.server = nil
		md0.Restart()
		y.meta()
		for y.server == nil {
			rt.Sleep(time.Millisecond)
		}
		x.drop = nil
		if err := y.allLost(c, rt); err != nil {
			return err
		}
		if _, err := c.Get(late, nil, soon(rt)); !errors.Is(err, kv.ErrLost) {
			return fmt.Errorf("a key that is lost, too: %w", err)
		}
		return nil
	})
	y.run()
	return died
}
