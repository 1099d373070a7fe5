package sherman_test

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A client that loses the race for a root clears its page, and the WRITE is late: it is executed
// after the client's deadline. By then no client of the node may have made a leaf of the page, whose
// acknowledged keys the WRITE would take away.
func TestLateClearHitsNoPageInUse(t *testing.T) {
	for name, shape := range map[string]layout.Shape{"hardened": {Page: 256}, "checksummed": {Kind: layout.Checksummed, Page: 256}} {
		t.Run(name, func(t *testing.T) { lateClear(t, shape) })
	}
}

func lateClear(t *testing.T, shape layout.Shape) {
	g := newRig(t, simrack.Options{}, region)
	g.format(sherman.FormatConfig{Shape: shape, Chunk: 4096})
	n := g.node(sherman.NodeConfig{}) // of the loser and the user
	rival := g.node(sherman.NodeConfig{})
	h := g.Host("cn0")
	// atRoot: the loser is about to make a root. rooted: the rival has made one. late: the loser's
	// clearing WRITE is on its way. used: the user has read its keys again.
	atRoot, rooted, late, used := false, false, false, false
	var deadline clock.Time // of the loser's operation
	h.Go("loser", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		post := func(wrs []verbs.SendWR) []verbs.SendWR {
			switch {
			case !atRoot && wrs[0].Op == verbs.OpCmpSwap && wrs[0].CompareAdd != 0: // of the root word
				for atRoot = true; !rooted; rt.Sleep(time.Microsecond) {
				}
			case atRoot && !late && len(wrs) == 1 && wrs[0].Op == verbs.OpWrite && wrs[0].SGL[0].Length == layout.Line:
				if d := deadline.Sub(rt.Now()) - 200*time.Microsecond; d > 0 {
					rt.Sleep(d)
				}
				h.SetFaults([]fault.Rule{{
					Link: "cn0", Dir: fault.Up, Kind: fault.Delay, Delay: 15 * time.Millisecond, Count: 1,
					Match: fault.Match{Opcodes: []wire.Opcode{wire.RCWriteOnly}},
				}})
				late = true
			}
			return wrs
		}
		c, err := n.Open(sherman.Config{Context: bent{ctx, post}, Manager: h.Manager(ctx), Params: rdmacm.Params{Timeout: 14}}, soon(rt))
		for k := uint64(0); k < 40 && err == nil && !late; k++ {
			deadline = rt.Now().Add(20 * time.Millisecond)
			err = c.Upsert(2*k, value(2*k, 0), deadline)
		}
		if err != nil || !late {
			t.Errorf("the client that loses the race: WRITE seen %v, %v", late, err)
		}
		for late = true; err == nil && !used; {
			rt.Sleep(time.Millisecond)
		}
		if err = c.Close(); err != nil {
			t.Error(err)
		}
	})
	g.client("cn1", rival, func(c *sherman.Client, rt verbs.Runtime) error {
		for !atRoot {
			rt.Sleep(time.Microsecond)
		}
		defer func() { rooted = true }()
		for k := uint64(0); rival.Stats().Roots == 0; k++ {
			if err := c.Upsert(1<<20+k, value(1<<20+k, 0), soon(rt)); err != nil {
				return err
			}
		}
		return nil
	})
	h.Go("user", false, func(ctx verbs.Context) {
		defer func() { used = true }()
		rt := ctx.Runtime()
		c, err := n.Open(sherman.Config{Context: ctx, Manager: h.Manager(ctx)}, soon(rt))
		if err != nil {
			t.Error(err)
			return
		}
		for !late {
			rt.Sleep(time.Microsecond)
		}
		rt.Sleep(600 * time.Microsecond) // the loser's deadline has passed
		const first, keys = 1 << 30, 60
		for k := uint64(first); k < first+keys && err == nil; k++ {
			err = c.Upsert(k, value(k, 0), soon(rt))
		}
		rt.Sleep(30 * time.Millisecond) // the late WRITE is executed
		for k := uint64(first); k < first+keys && err == nil; k++ {
			if _, gone := c.Get(k, nil, rt.Now().Add(50*time.Millisecond)); gone != nil {
				t.Errorf("key %d was acknowledged: %v", k, gone)
			}
		}
		if err = errors.Join(err, c.Close()); err != nil {
			t.Error(err)
		}
	})
	g.run()
}
