package sherman_test

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A lock that is handed over shows other nodes the same tag all the time. A slow node must release
// it before other nodes take it for dead, although eight hand-overs would take longer than the
// lease.
func TestHandOversDoNotOutlastTheLease(t *testing.T) {
	const lease = 50 * time.Millisecond
	g := newRig(t, simrack.Options{}, region)
	g.format(sherman.FormatConfig{})
	slow, other := g.node(sherman.NodeConfig{Lease: lease}), g.node(sherman.NodeConfig{Lease: lease})
	working := 10
	g.Host("cn0").SetFaults([]fault.Rule{{Link: "cn0", Dir: fault.Both, Kind: fault.Delay, Delay: 4 * time.Millisecond}})
	for range working {
		g.client("cn0", slow, func(c *sherman.Client, rt verbs.Runtime) (err error) {
			for i := uint64(0); i < 6 && err == nil; i++ {
				err = c.Upsert(1, value(1, i), soon(rt))
			}
			working--
			return err
		})
	}
	g.client("cn1", other, func(c *sherman.Client, rt verbs.Runtime) (err error) {
		for i := uint64(0); working > 0 && err == nil; i++ {
			err = c.Upsert(1, value(1, i), soon(rt))
			rt.Sleep(5 * time.Millisecond) // so that the other node gets the lock, too
		}
		return err
	})
	g.run()
	s, o := slow.Stats(), other.Stats()
	if s.Fenced != 0 || o.Fenced != 0 || o.Recovered != 0 || s.HandOvers < 20 {
		t.Errorf("slow: fenced %d times, %d hand-overs of %d; the other node took %d locks over", s.Fenced, s.HandOvers, s.Acquires, o.Recovered)
	}
}
