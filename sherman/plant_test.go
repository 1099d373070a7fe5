package sherman_test

import (
	"errors"
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

// Planted bugs: a layer between a client and its NIC changes the client's requests. The tests must
// notice each bug.

// Messages of package memservice: version and kind.
const (
	fenceMessage  = "\x01\x03"
	retireMessage = "\x01\x05"
)

// noFence answers fences without sending them.
type noFence struct{ rdmacm.Dialer }

func (d noFence) Dial(qp verbs.QP, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	if strings.HasPrefix(string(private), fenceMessage) {
		return nil, &rdmacm.RejectError{Private: []byte(fenceMessage)}
	}
	return d.Dialer.Dial(qp, to, service, p, private, deadline)
}

// bent is a context whose queue pairs post the work requests that post returns in place of the
// client's.
type bent struct {
	verbs.Context
	post func(wrs []verbs.SendWR) []verbs.SendWR
}

type bentPD struct {
	verbs.PD
	post func(wrs []verbs.SendWR) []verbs.SendWR
}

type bentQP struct {
	verbs.QP
	post func(wrs []verbs.SendWR) []verbs.SendWR
}

func (b bent) AllocPD() (verbs.PD, error) {
	pd, err := b.Context.AllocPD()
	return bentPD{pd, b.post}, err
}

func (b bentPD) CreateQP(i verbs.QPInit) (verbs.QP, error) {
	qp, err := b.PD.CreateQP(i)
	return bentQP{qp, b.post}, err
}

func (b bentQP) PostSend(wrs ...verbs.SendWR) error { return b.QP.PostSend(b.post(wrs)...) }

// releaseFirst moves the last WRITE of a chain, which releases the lock, to the front.
func releaseFirst(wrs []verbs.SendWR) []verbs.SendWR {
	if len(wrs) < 2 {
		return wrs
	}
	return append([]verbs.SendWR{wrs[len(wrs)-1]}, wrs[:len(wrs)-1]...)
}

// notLinked drops the WRITE of the header of a split page, which names the new page.
func notLinked(wrs []verbs.SendWR) []verbs.SendWR {
	if len(wrs) > 1 && wrs[0].Op == verbs.OpWrite && wrs[0].SGL[0].Length == layout.Line {
		return wrs[1:]
	}
	return wrs
}

// A history shows that a lock was released before the page was written.
func TestHistoriesSeeAReleaseBeforeTheWrite(t *testing.T) {
	for seed := range uint64(40) {
		tr := trial{
			seed: seed + 1, shape: layout.Shape{Page: 256, Value: 16}, keys: 20, rounds: 60, lax: true, post: releaseFirst,
			rules: []fault.Rule{{Kind: fault.Delay, Probability: 0.3, Delay: 50 * time.Microsecond}},
		}
		if err := tr.run(t); err != nil {
			t.Logf("seed %d: %.200v", tr.seed, err)
			return
		}
	}
	t.Error("the planted bug was not noticed")
}

// After a split whose page does not name its sibling, keys are missing.
func TestASiblingThatIsNotLinkedIsMissed(t *testing.T) {
	g := newRig(t, simrack.Options{}, region)
	g.format(sherman.FormatConfig{Shape: layout.Shape{Page: 256}})
	h, seen := g.Host("cn0"), 0
	h.Go("client", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		c, err := g.node(sherman.NodeConfig{}).Open(sherman.Config{Context: bent{ctx, notLinked}, Manager: h.Manager(ctx)}, soon(rt))
		if err != nil {
			t.Error(err)
			return
		}
		for k := range uint64(10) { // the tenth splits the page
			if err := c.Insert(k, value(k, 0), rt.Now().Add(10*time.Millisecond)); err != nil {
				t.Error(err)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	g.client("cn1", g.node(sherman.NodeConfig{}), func(c *sherman.Client, rt verbs.Runtime) error {
		rt.Sleep(100 * time.Millisecond)
		return c.Scan(0, 100, func(k uint64, _ []byte) bool {
			seen++
			return true
		}, soon(rt))
	})
	g.run()
	if seen == 10 {
		t.Error("the planted bug was not noticed")
	}
}

// Without the fence, a WRITE that was in flight when its owner was suspected overwrites a later
// write.
func TestWithoutTheFenceALateWriteLands(t *testing.T) {
	if lateWrite(t, true) {
		t.Error("an inserted key is gone in spite of the fence")
	}
	if !lateWrite(t, false) {
		t.Error("the key is there without the fence: this test proves nothing")
	}
}

// lateWrite reports whether a key is lost whose insert was acknowledged: the network holds a
// suspected node's WRITE to the slot for longer than the lease.
func lateWrite(t *testing.T, fenced bool) (lost bool) {
	g := newRig(t, simrack.Options{}, region)
	g.format(sherman.FormatConfig{})
	stage := 0
	g.client("cn0", g.node(sherman.NodeConfig{}), func(c *sherman.Client, rt verbs.Runtime) error {
		if err := c.Insert(1, value(1, 0), soon(rt)); err != nil {
			return err
		}
		g.Host("cn0").SetFaults([]fault.Rule{{
			Link: "cn0", Dir: fault.Up, Kind: fault.Delay, Delay: 20 * time.Millisecond, Match: fault.Match{Opcodes: []wire.Opcode{wire.RCWriteOnly}},
		}})
		stage = 1
		if err := c.Put(1, value(1, 1), soon(rt)); err != nil && !errors.Is(err, kv.ErrTimeout) {
			return err
		}
		stage = 2
		return nil
	})
	h := g.Host("cn1")
	h.Go("quick", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		cfg := sherman.Config{Context: ctx, Manager: h.Manager(ctx)}
		if !fenced {
			cfg.Manager = noFence{cfg.Manager}
		}
		c, err := g.node(sherman.NodeConfig{Lease: 2 * time.Millisecond}).Open(cfg, soon(rt))
		if err != nil {
			t.Error(err)
			return
		}
		for stage < 1 {
			rt.Sleep(time.Microsecond)
		}
		rt.Sleep(20 * time.Microsecond)
		// into the slot of key 1
		err = errors.Join(c.Delete(1, soon(rt)), c.Insert(9, value(9, 2), soon(rt)))
		for stage < 2 {
			rt.Sleep(time.Millisecond)
		}
		rt.Sleep(30 * time.Millisecond)
		_, gone := c.Get(9, nil, soon(rt))
		lost = errors.Is(gone, kv.ErrNotFound)
		if err = errors.Join(err, c.Close()); err != nil || gone != nil && !lost {
			t.Error(err, gone)
		}
	})
	g.run()
	return lost
}
