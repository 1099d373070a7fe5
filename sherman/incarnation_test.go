package sherman_test

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// quick are parameters with which a connection without answers fails after a short time.
var quick = rdmacm.Params{Timeout: 6, RetryCount: 1}

// story is a tree of one leaf, into which clients of two nodes insert. In stage 2 the client that
// other runs holds the lock of the leaf for a while, and no other client may write the leaf.
type story struct {
	*rig
	stage int
}

func newStory(t *testing.T) *story {
	return &story{rig: newRig(t, simrack.Options{}, region)}
}

func (y *story) wait(rt verbs.Runtime, stage int) {
	for ; y.stage < stage; rt.Sleep(time.Microsecond) {
	}
}

// open opens a client whose requests go through post.
func (y *story) open(ctx verbs.Context, host string, n *sherman.Node, post func([]verbs.SendWR) []verbs.SendWR) (*sherman.Client, error) {
	return n.Open(sherman.Config{Context: bent{ctx, post}, Manager: y.Host(host).Manager(ctx), Params: quick}, soon(ctx.Runtime()))
}

// other inserts a key in stage 1. In stage 2 it has the lock, and has read the leaf.
func (y *story) other(key uint64) {
	n := y.node(sherman.NodeConfig{Lease: time.Second})
	y.Host("cn1").Go("other", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		c, err := y.open(ctx, "cn1", n, func(wrs []verbs.SendWR) []verbs.SendWR {
			if y.stage == 1 && len(wrs) > 1 {
				y.stage = 2
				for end := rt.Now().Add(50 * time.Millisecond); y.stage == 2 && rt.Now() < end; rt.Sleep(time.Microsecond) {
				}
			}
			return wrs
		})
		if y.wait(rt, 1); err == nil {
			err = c.Insert(key, value(key, 0), soon(rt))
		}
		y.wait(rt, 3)
		for k := uint64(1); k <= key && err == nil; k++ {
			_, err = c.Get(k, nil, soon(rt))
		}
		if err = errors.Join(err, c.Close()); err != nil {
			y.t.Error(err)
		}
	})
}

// The answers to a client's WRITEs and release are lost, and the client gives up: the lock word may
// have its node's tag or not. The next client of the node must read the word, because it may have
// the tag of another node.
func TestAnInheritedWordInDoubtIsRead(t *testing.T) {
	y := newStory(t)
	y.format(sherman.FormatConfig{Locks: 1})
	n := y.node(sherman.NodeConfig{Lease: time.Second})
	h := y.Host("cn0")
	h.Go("gives up", false, func(ctx verbs.Context) {
		rt, armed := ctx.Runtime(), false
		c, err := y.open(ctx, "cn0", n, func(wrs []verbs.SendWR) []verbs.SendWR {
			if armed && len(wrs) > 1 {
				armed = false
				h.SetFaults([]fault.Rule{{Link: "cn0", Kind: fault.Blackhole, Dir: fault.Down}})
			}
			return wrs
		})
		if err == nil {
			err = c.Insert(1, value(1, 0), soon(rt))
		}
		if armed = true; err == nil && c.Insert(2, value(2, 0), rt.Now().Add(time.Millisecond)) == nil {
			t.Error("the INSERT has no answer and succeeds")
		}
		h.SetFaults(nil)
		y.stage = 1
		if y.wait(rt, 3); err != nil {
			t.Error(err)
		}
		_ = c.Close()
	})
	y.client("cn0", n, func(c *sherman.Client, rt verbs.Runtime) error {
		y.wait(rt, 2)
		err := c.Insert(3, value(3, 0), soon(rt))
		y.stage = 3
		return err
	})
	y.other(4)
	y.run()
}

// A memory server's NIC restarts, which clears the lock words; the server's memory stays. A client
// that took a lock before the restart does not hold it any more.
func TestALockOfAnEarlierIncarnationIsNone(t *testing.T) {
	y := newStory(t)
	ms, memory := y.Host("ms0"), make([]byte, region)
	serve := func() {
		ms.Go("memory", true, func(ctx verbs.Context) {
			s, err := memservice.New(ctx, ms.Manager(ctx), memservice.Config{Buffer: memory, Locks: 8 * layout.DefaultLocks})
			if err == nil {
				err = s.Serve()
			}
			if err != nil && !errors.Is(err, verbs.ErrClosed) {
				t.Error(err)
			}
		})
	}
	restart := func() {
		ms.Crash()
		ms.Restart()
		serve()
	}
	y.At(y.Now(), restart)
	y.format(sherman.FormatConfig{Locks: 1})
	h, n := y.Host("cn0"), y.node(sherman.NodeConfig{Lease: time.Second})
	h.Go("owner", false, func(ctx verbs.Context) {
		rt, armed, locked := ctx.Runtime(), false, false
		c, err := y.open(ctx, "cn0", n, func(wrs []verbs.SendWR) []verbs.SendWR {
			switch {
			case armed && wrs[0].Op == verbs.OpCmpSwap:
				locked = true
			case armed && locked && wrs[0].Op == verbs.OpRead:
				armed = false
				y.At(rt.Now(), restart)
				y.stage = 1
				y.wait(rt, 2)
			}
			return wrs
		})
		for k := uint64(1); k <= 2 && err == nil; k++ {
			err = c.Insert(k, value(k, 0), soon(rt))
		}
		if armed = true; err == nil {
			err = c.Insert(3, value(3, 0), soon(rt))
		}
		y.stage = 3
		if err = errors.Join(err, c.Close()); err != nil {
			t.Error(err)
		}
	})
	y.other(4)
	y.run()
}
