package sherman_test

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A late answer shows an old value of the lock word, for example to a client that was stopped while
// it waited for the answer. That must not make it take the owner for dead.
func TestALateAnswerIsNoLease(t *testing.T) {
	const (
		hold   = 20 * time.Millisecond
		answer = 40 * time.Millisecond // each answer takes less than the lease, both together take longer
	)
	g := newRig(t, simrack.Options{}, region)
	g.format(sherman.FormatConfig{})
	upserts := func(c *sherman.Client, rt verbs.Runtime) (err error) {
		for end := rt.Now().Add(time.Second); rt.Now() < end && err == nil; rt.Sleep(5 * time.Millisecond) {
			err = c.Upsert(1, value(1, 0), soon(rt))
		}
		return err
	}
	client := func(host string, n *sherman.Node, before time.Duration) {
		h := g.Host(host)
		h.Go(host, false, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			slow := func(wrs []verbs.SendWR) []verbs.SendWR {
				if len(wrs) > 1 { // it holds the lock
					rt.Sleep(before)
				}
				return wrs
			}
			c, err := n.Open(sherman.Config{Context: bent{ctx, slow}, Manager: h.Manager(ctx), Params: rdmacm.Params{Timeout: 18}}, soon(rt))
			if err == nil {
				err = errors.Join(upserts(c, rt), c.Close())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	owner, late := g.node(sherman.NodeConfig{}), g.node(sherman.NodeConfig{})
	client("cn0", owner, hold)
	client("cn1", late, 0)
	g.Host("cn1").SetFaults([]fault.Rule{
		{Link: "cn1", Dir: fault.Up, Kind: fault.Delay, Delay: time.Millisecond},
		{Link: "cn1", Dir: fault.Down, Kind: fault.Delay, Probability: 0.05, Delay: answer, Match: fault.Match{Opcodes: []wire.Opcode{wire.RCAtomicAck}}},
	})
	g.run()
	if s, l := owner.Stats(), late.Stats(); s.Fenced != 0 || s.Acquires < 20 || l.Acquires < 5 || l.CAS < 5*l.Acquires {
		t.Errorf("a living owner was fenced %d times; it took %d locks, the other one %d with %d CAS", s.Fenced, s.Acquires, l.Acquires, l.CAS)
	}
}
