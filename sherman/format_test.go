package sherman_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
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
	"github.com/rdmalab/rdmalab/store/kv"
)

// names records the owners whose tags a client puts into lock words.
func names(into map[uint32]bool) func([]verbs.SendWR) []verbs.SendWR {
	return func(wrs []verbs.SendWR) []verbs.SendWR {
		for i := range wrs {
			if wrs[i].Op == verbs.OpCmpSwap && wrs[i].CompareAdd == 0 {
				into[layout.Tag(wrs[i].Swap).Owner()] = true
			}
		}
		return wrs
	}
}

// as runs f as an application of a host, with a client of a new node. The client's work requests go
// through post.
func (g *rig) as(host string, post func([]verbs.SendWR) []verbs.SendWR, f func(c *sherman.Client, rt verbs.Runtime) error) {
	h := g.Host(host)
	h.Go("client", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		c, err := g.node(sherman.NodeConfig{}).Open(sherman.Config{Context: bent{ctx, post}, Manager: h.Manager(ctx)}, soon(rt))
		if err == nil {
			err = errors.Join(f(c, rt), c.Close())
		}
		if err != nil {
			g.t.Errorf("client of %s: %v", host, err)
		}
	})
}

// A tree that is formatted over an older one gives no client the owner number of a living client of
// the older one, whatever value the owner word has.
func TestFormatReusesNoOwnerNumber(t *testing.T) {
	const asItIs = 1<<64 - 1
	// the last value is not that of an owner word: the memory was used for something else
	for _, word := range []uint64{asItIs, 0, 1 << 40} {
		g := newRig(t, simrack.Options{}, region)
		g.format(sherman.FormatConfig{})
		old, young := map[uint32]bool{}, map[uint32]bool{}
		stage := 0
		for _, host := range []string{"cn1", "cn2", "cn3"} {
			g.as(host, names(old), func(c *sherman.Client, rt verbs.Runtime) error {
				if err := c.Upsert(1, value(1, 0), soon(rt)); err != nil {
					return err
				}
				for stage++; stage < 4; {
					rt.Sleep(time.Millisecond)
				}
				if err := c.Upsert(1, value(1, 1), soon(rt)); !errors.Is(err, kv.ErrLost) || !errors.Is(err, kv.ErrNoEffect) {
					return fmt.Errorf("a client of the old tree wrote: %w", err)
				}
				return nil
			})
		}
		h := g.Host("cn0")
		h.Go("again", false, func(ctx verbs.Context) {
			rt, m := ctx.Runtime(), h.Manager(ctx)
			for stage < 3 {
				rt.Sleep(time.Millisecond)
			}
			if word != asItIs {
				if err := g.scribble(ctx, m, layout.At(0, layout.OwnerWord), binary.NativeEndian.AppendUint64(nil, word)); err != nil {
					t.Error(err)
				}
			}
			if _, err := sherman.Format(sherman.Config{Context: ctx, Manager: m}, g.servers, sherman.FormatConfig{}, soon(rt)); err != nil {
				t.Error(err)
			}
			stage++
		})
		g.run()
		for range 3 {
			g.as("cn0", names(young), func(c *sherman.Client, rt verbs.Runtime) error {
				return c.Upsert(1, value(1, 2), soon(rt))
			})
		}
		g.run()
		if len(old) != 3 || len(young) != 3 {
			t.Errorf("owners %v of the old tree and %v of the new one; want 3 each", old, young)
		}
		for id := range young {
			if old[id] {
				t.Errorf("word %#x: owner %d is of both trees", word, id)
			}
		}
	}
}

// noRetire is a dialer that answers requests to fence owners as if there were none.
type noRetire struct{ rdmacm.Dialer }

func (d noRetire) Dial(qp verbs.QP, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	if strings.HasPrefix(string(private), retireMessage) {
		return nil, &rdmacm.RejectError{Private: []byte(retireMessage + "\x00\x00\x00\x00")}
	}
	return d.Dialer.Dial(qp, to, service, p, private, deadline)
}

// A late WRITE of the old tree is executed only if Format does not retire the owners of that tree.
func TestFormatFencesTheOldTree(t *testing.T) {
	if lateFromOldTree(t, true) {
		t.Error("a client of the old tree has written into the new one")
	}
	if !lateFromOldTree(t, false) {
		t.Error("without the fence no late WRITE was executed: this test proves nothing")
	}
}

// lateFromOldTree reports whether a WRITE is executed that was in flight when the tree was
// formatted again.
func lateFromOldTree(t *testing.T, retired bool) (landed bool) {
	g := newRig(t, simrack.Options{}, region)
	g.format(sherman.FormatConfig{})
	stage := 0
	g.client("cn1", g.node(sherman.NodeConfig{}), func(c *sherman.Client, rt verbs.Runtime) error {
		if err := c.Insert(1, value(1, 0), soon(rt)); err != nil {
			return err
		}
		g.Host("cn1").SetFaults([]fault.Rule{{
			Link: "cn1", Dir: fault.Up, Kind: fault.Delay, Delay: 20 * time.Millisecond, Match: fault.Match{Opcodes: []wire.Opcode{wire.RCWriteOnly}},
		}})
		stage = 1
		_ = c.Put(1, value(1, 1), rt.Now().Add(50*time.Millisecond))
		return nil
	})
	h := g.Host("cn0")
	h.Go("again", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		for stage < 1 {
			rt.Sleep(time.Microsecond)
		}
		rt.Sleep(30 * time.Microsecond) // the WRITE is in flight
		cfg := sherman.Config{Context: ctx, Manager: h.Manager(ctx)}
		maker := cfg
		if !retired {
			maker.Manager = noRetire{cfg.Manager}
		}
		_, err := sherman.Format(maker, g.servers, sherman.FormatConfig{}, soon(rt))
		if err != nil {
			t.Error(err)
			return
		}
		rt.Sleep(100 * time.Millisecond)
		c, err := g.node(sherman.NodeConfig{}).Open(cfg, soon(rt))
		if err != nil {
			t.Error(err)
			return
		}
		_, err = c.Get(1, nil, soon(rt))
		if landed = err == nil; !landed && !errors.Is(err, kv.ErrNotFound) {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	g.run()
	return landed
}
