package clover_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
)

// filter is a switch that loses what drop says.
type filter struct {
	simnet.Node
	drop func(now clock.Time, f *wire.Frame) bool
}

func (x *filter) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	var g wire.Frame
	if x.drop != nil && wire.ParseFrame(f.Data, &g) == nil && x.drop(now, &g) {
		return
	}
	x.Node.Frame(now, port, f, out)
}

func (x *filter) options() simrack.Options {
	return simrack.Options{Wrap: atSwitch(func(n simnet.Node) simnet.Node { x.Node = n; return x })}
}

// alike compares the headers of all copies of each node in the servers' memory, when no append is in
// progress.
func alike(g *rig) error {
	var super layout.Superblock
	if err := super.Parse(g.lent["ms0"]); err != nil {
		return err
	}
	space := super.Space
	header := func(p layout.Place) layout.Word {
		return layout.HeaderOf(g.lent[fmt.Sprintf("ms%d", p.Server)][p.Offset:])
	}
	nodes := 0
	for h := layout.Handle(1); ; h++ {
		p, ok := space.Place(h)
		if !ok {
			break
		}
		for j := 1; j <= space.Backups; j++ {
			if a, b := header(p), header(space.Copy(p, j)); a != b && a.EntryVersion() == b.EntryVersion() {
				return fmt.Errorf("the first copy of node %d says %v, copy %d says %v", h, a, j, b)
			} else if a.Valid() {
				nodes++
			}
		}
	}
	if nodes == 0 {
		return errors.New("no node was compared")
	}
	return nil
}

// lastCopyAlone makes a client of cn0 that prepares, replaces the value of key 1, and dies when the node
// is on the last copy alone. Then dead is set.
func (x *filter) lastCopyAlone(g *rig, dead *bool, prepare func(c *clover.Client, rt verbs.Runtime) error) {
	h := g.Host("cn0")
	h.Go("dies", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		c, err := clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: g.Host("md0").Addr()}, soon(rt))
		if err == nil {
			err = prepare(c, rt)
		}
		if err != nil {
			g.t.Error(err)
			return
		}
		swaps := 0
		x.drop = func(now clock.Time, f *wire.Frame) bool {
			if f.BTH.Opcode != wire.RCCmpSwap || netip.AddrFrom4(f.IPv4.Src) != h.Addr() {
				return false
			}
			if swaps++; swaps == 2 {
				*dead = true
				g.At(now, h.CrashApps)
			}
			return swaps >= 2
		}
		_ = c.Put(1, value(1, 1, 40), soon(rt))
	})
}

// A client dies when its node is on the last copy alone. Another client that appends to the same
// chain makes the missing links and goes on, long before the dead client's lease ends.
func TestAWinnerThatDiesBlocksNoOtherClient(t *testing.T) {
	for replicas := 2; replicas <= 3; replicas++ {
		x := &filter{}
		g := newRigOf(t, threeServers, x.options(), meta.Config{Format: layout.Hardened, Keys: 64, Replicas: replicas, Lease: 20 * time.Second}, region)
		ready, dies := false, false
		g.client("cn1", func(c *clover.Client, rt verbs.Runtime) error {
			if err := c.Insert(1, value(1, 0, 40), soon(rt)); err != nil {
				return err
			}
			for ready = true; !dies; rt.Sleep(100 * time.Microsecond) {
			}
			rt.Sleep(time.Millisecond)
			if v, err := c.Get(1, nil, soon(rt)); err != nil || !bytes.Equal(v, value(1, 0, 40)) {
				return fmt.Errorf("an append that is not on all copies is read as %.10q: %w", v, err)
			}
			if err := c.Put(1, value(1, 2, 40), rt.Now().Add(time.Second)); err != nil {
				return err
			}
			if rtts := c.Last().RTTs; rtts > 3*(replicas+1) {
				t.Errorf("%d copies: %d round trips", replicas, rtts)
			}
			if err := alike(g); err != nil {
				return err
			}
			v, err := c.Get(1, nil, soon(rt))
			if err != nil || !bytes.Equal(v, value(1, 2, 40)) {
				return fmt.Errorf("after the PUT the value is %.10q: %w", v, err)
			}
			return nil
		})
		x.lastCopyAlone(g, &dies, func(_ *clover.Client, rt verbs.Runtime) error {
			for ; !ready; rt.Sleep(100 * time.Microsecond) {
			}
			return nil
		})
		g.run()
	}
}

// The lease of a client ends when its node is on the last copy alone. The client completes the append
// under a lease that it renews, or says that the outcome is not known. It appends no other node with
// the value, because another client may have made the missing links.
func TestAnAppendOnSomeCopiesIsOpen(t *testing.T) {
	q := &requests{from: func() (a netip.Addr) { return a }}
	g := newRigOf(t, threeServers, simrack.Options{Wrap: atSwitch(func(n simnet.Node) simnet.Node { q.Node = n; return q })}, meta.Config{
		Format: layout.Hardened, Keys: 64, Replicas: 2, Lease: 200 * time.Millisecond, Grace: 2 * time.Second,
	}, region)
	q.from = g.Host("cn0").Addr
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		for n := range 3 {
			err := c.Put(1, value(1, n, 40), soon(rt))
			if errors.Is(err, kv.ErrNotFound) {
				err = c.Insert(1, value(1, n, 40), soon(rt))
			}
			if err != nil {
				return err
			}
		}
		rules := []fault.Rule{{Link: "cn0", Kind: fault.Delay, Delay: 300 * time.Millisecond, Match: fault.Match{Opcodes: []wire.Opcode{wire.RCAtomicAck}}}}
		g.At(rt.Now(), func() { g.Host("cn0").SetFaults(rules) })
		g.At(rt.Now().Add(310*time.Millisecond), func() { g.Host("cn0").SetFaults(nil) })
		rt.Sleep(time.Millisecond)
		q.reset()
		if err := c.Put(1, value(1, 9, 40), soon(rt)); err != nil && !errors.Is(err, kv.ErrTimeout) {
			return err
		}
		if q.writes != 2 {
			t.Errorf("%d WRITEs of nodes: want one node, on two servers", q.writes)
		}
		return nil
	})
	g.run()
}

// All copies of the nodes of ms0 are on ms0 and ms1. ms1 does not answer for a while, and ms0 loses
// its memory: the store waits for ms1, and nothing is lost.
func TestTheOnlyCopyIsWaitedFor(t *testing.T) {
	y := newCopyStory(t, 2)
	y.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		if err := y.write(c, rt, 1); err != nil {
			return err
		}
		y.Host("ms1").HangAll()
		y.Host("ms0").Crash()
		y.Host("ms0").Restart()
		y.memory("ms0")
		rt.Sleep(2 * time.Second)
		y.Host("ms1").ResumeAll()
		lost, err := y.read(c, rt)
		if lost > 0 {
			t.Errorf("%d keys lost", lost)
		}
		return err
	})
	y.run()
}

// A memory server does not answer the metadata server, but clients reach it. It goes out only when
// no client has a lease any more: a client that knows nothing of that reads old values there.
func TestNoOldValueFromAServerThatIsOut(t *testing.T) {
	for shift := range 8 { // of the client's questions to the metadata server, against the change
		testNoOldValue(t, time.Duration(shift)*10*time.Millisecond)
	}
}

func testNoOldValue(t *testing.T, shift time.Duration) {
	g, cut := newCutRig(t, 200*time.Millisecond)
	history := kv.NewHistory()
	key, end := uint64(0), false
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error { // it asks the metadata server now and then
		s := kv.Record(c, history, 1, rt.Now)
		k, err := keyOn0(c, s, rt)
		if err != nil {
			return err
		}
		key = k
		cut()
		rt.Sleep(shift)
		for !end {
			if _, err := c.Get(1000, nil, soon(rt)); !errors.Is(err, kv.ErrNotFound) {
				return fmt.Errorf("a key that is not there: %w", err)
			}
			for range 80 {
				if _, err := s.Get(key, nil, soon(rt)); err != nil {
					return err
				}
				rt.Sleep(time.Millisecond)
			}
		}
		return s.Err()
	})
	overwritten(g, history, &key, 2*time.Second, &end)
	if err := history.Check(kv.MostStates); err != nil {
		t.Errorf("shift %v: %v", shift, err)
	}
}

// A client dies when its node is on the last copy alone, and no other client appends to the chain. The
// metadata server makes the missing links before it takes the dead client's nodes back: otherwise
// a copy would name a node that has been given out again.
func TestTheAppendOfADeadClientIsCompleted(t *testing.T) {
	for replicas := 2; replicas <= 3; replicas++ {
		x := &filter{}
		const lease = 100 * time.Millisecond
		g := newRigOf(t, threeServers, x.options(), meta.Config{Format: layout.Hardened, Keys: 64, Replicas: replicas, Lease: lease, Grace: lease}, region)
		dead := false
		x.lastCopyAlone(g, &dead, func(c *clover.Client, rt verbs.Runtime) error { return c.Insert(1, value(1, 0, 40), soon(rt)) })
		g.client("cn1", func(c *clover.Client, rt verbs.Runtime) error {
			rt.Sleep(20 * lease)
			if err := alike(g); err != nil {
				t.Errorf("%d copies: %v", replicas, err)
			}
			if v, err := c.Get(1, nil, soon(rt)); err != nil || !bytes.Equal(v, value(1, 1, 40)) {
				t.Errorf("%d copies: %.10q, %v", replicas, v, err)
			}
			return nil
		})
		g.run()
	}
}
