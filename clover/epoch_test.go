package clover

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// casLoser is a switch that loses the compare-and-swaps of one host while drop is set.
type casLoser struct {
	simnet.Node
	port    int
	drop    bool
	dropped int
}

func (b *casLoser) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	var g wire.Frame
	if b.drop && port == b.port && wire.ParseFrame(f.Data, &g) == nil && g.BTH.Opcode == wire.RCCmpSwap {
		b.dropped++
		return
	}
	b.Node.Frame(now, port, f, out)
}

// epochStory is a rack with one memory server and a pool of 14 nodes. The key worn was updated by a
// client that died without a report: its shortcut names its first node. Another client, wearer, has
// used up all versions of the pool's nodes with another key. In a later epoch it holds that first
// node again, in the same version.
type epochStory struct {
	t      *testing.T
	rack   *simrack.Rack
	box    *casLoser
	params rdmacm.Params
	lease  time.Duration
	stage  int
	first  layout.Location
	// before is how many PUTs of the other key cn0 makes before it makes the key worn; epoch is the
	// epoch in which it makes that key.
	before int
	epoch  uint32
}

const wornKey, otherKey = 1, 2

func newEpochStory(t *testing.T) *epochStory {
	t.Helper()
	box := &casLoser{port: 3}
	y := newEpochStoryOn(t, func(n simnet.Node) simnet.Node {
		box.Node = n
		return box
	})
	y.box = box
	y.client("cn0", 16, y.die)
	return y
}

// newEpochStoryOn makes an epochStory whose switch is the result of wrap.
func newEpochStoryOn(t *testing.T, wrap func(simnet.Node) simnet.Node) *epochStory {
	t.Helper()
	y := &epochStory{t: t, params: rdmacm.Params{Timeout: 14}, lease: 200 * time.Millisecond}
	s, err := rackfile.Parse([]byte("name: clover\nhosts:\n  - {name: md0, role: metadata}\n  - {name: ms0, role: memory}\n" +
		"  - {name: \"cn[0-3]\", role: compute}\n"))
	if err != nil {
		t.Fatal(err)
	}
	y.rack, err = simrack.New(s, simrack.Options{Wrap: func(name string, n simnet.Node) simnet.Node {
		if name != rackfile.SwitchName {
			return n
		}
		return wrap(n)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(y.rack.Close)
	y.memory()
	y.meta()
	return y
}

// memory starts the memory service, meta the metadata server.
func (y *epochStory) memory() {
	ms := y.rack.Host("ms0")
	y.serve(ms, func(ctx verbs.Context) (interface{ Serve() error }, error) {
		return memservice.New(ctx, ms.Manager(ctx), memservice.Config{Region: 2 << 10})
	})
}

func (y *epochStory) meta() {
	ms, md := y.rack.Host("ms0"), y.rack.Host("md0")
	y.serve(md, func(ctx verbs.Context) (interface{ Serve() error }, error) {
		return meta.New(meta.Config{
			Context: ctx, Manager: md.Manager(ctx), Servers: []netip.Addr{ms.Addr()}, Format: layout.Hardened, Keys: 4,
			Shares: [layout.Classes]int{1}, Lease: y.lease, Grace: 50 * time.Millisecond, Params: y.params,
		})
	})
}

func (y *epochStory) serve(h *simrack.Host, open func(verbs.Context) (interface{ Serve() error }, error)) {
	h.Go("service", true, func(ctx verbs.Context) {
		s, err := open(ctx)
		if err == nil {
			err = s.Serve()
		}
		if err != nil && !errors.Is(err, verbs.ErrClosed) {
			y.t.Error(h.Spec.Name, err)
		}
	})
}

func (y *epochStory) client(host string, records int, f func(c *Client, rt verbs.Runtime) error) {
	h := y.rack.Host(host)
	h.Go("client", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		c, err := Open(Config{
			Context: ctx, Manager: h.Manager(ctx), Meta: y.rack.Host("md0").Addr(), Params: y.params, Batch: 1, Records: records,
		}, inTwoMinutes(rt))
		if err == nil {
			err = f(c, rt)
		}
		if err != nil && !errors.Is(err, verbs.ErrClosed) {
			y.t.Errorf("%s: %v", host, err)
		}
	})
}

func inTwoMinutes(rt verbs.Runtime) clock.Time { return rt.Now().Add(2 * time.Minute) }

func (y *epochStory) wait(rt verbs.Runtime, stage int) {
	for y.stage < stage {
		rt.Sleep(50 * time.Microsecond)
	}
}

// die makes the key worn, appends once, and dies without a report of that.
func (y *epochStory) die(c *Client, rt verbs.Runtime) error {
	if err := c.Insert(otherKey, padded("other"), inTwoMinutes(rt)); err != nil {
		return err
	}
	for n := range y.before {
		if err := c.Put(otherKey, padded(fmt.Sprint(n)), inTwoMinutes(rt)); err != nil {
			return err
		}
	}
	if err := c.Insert(wornKey, padded("first"), inTwoMinutes(rt)); err != nil {
		return err
	}
	k, _ := c.finder.cache.get(wornKey)
	y.first, y.epoch = k.at, c.session.lease.epoch
	if err := c.Put(wornKey, padded("second"), inTwoMinutes(rt)); err != nil {
		return err
	}
	y.stage = 1
	y.rack.At(y.rack.Now(), y.rack.Host("cn0").CrashApps)
	rt.Sleep(time.Hour)
	return nil
}

// wear uses up the versions of all nodes, until the next node that c writes is y.first, which was
// the first node of wornKey.
func (y *epochStory) wear(c *Client, rt verbs.Runtime) error {
	y.wait(rt, 1)
	for n := range 50000 {
		l, err := c.appender.take(0, otherKey, false, inTwoMinutes(rt))
		if err != nil {
			return err
		}
		c.session.spare[0] = append([]layout.Location{l}, c.session.spare[0]...)
		if l == y.first {
			y.t.Logf("%v is given out again after %d PUTs, in epoch %d", l, n, c.session.lease.epoch)
			return nil
		}
		if err := c.Put(otherKey, padded(fmt.Sprint(n)), inTwoMinutes(rt)); err != nil {
			return err
		}
	}
	return fmt.Errorf("%v was not given out again", y.first)
}

func (y *epochStory) read(c *Client, rt verbs.Runtime, when, want string) {
	v, err := c.Get(wornKey, nil, inTwoMinutes(rt))
	if got := string(bytes.TrimRight(v, ".")); err != nil || got != want {
		y.t.Errorf("%s: GET says %q %v, want %q", when, got, err, want)
	}
}

func padded(s string) []byte { return append([]byte(s), bytes.Repeat([]byte{'.'}, 40-len(s))...) }

// A shortcut of an earlier epoch names the very node that a writer has just been given and written.
// The writer must not take it for the end of the chain: its PUT would be acknowledged and lost. No
// packet is lost.
func TestShortcutOfAnEarlierEpochIsNoEnd(t *testing.T) {
	y := newEpochStory(t)
	y.client("cn1", 1, func(c *Client, rt verbs.Runtime) error {
		if err := y.wear(c, rt); err != nil {
			return err
		}
		y.stage = 2
		y.wait(rt, 4)
		err := c.Put(wornKey, padded("by the wearer"), inTwoMinutes(rt))
		y.stage = 5
		return err
	})
	y.client("cn2", 16, func(c *Client, rt verbs.Runtime) error {
		y.wait(rt, 2)
		y.read(c, rt, "before", "second")
		y.stage = 3
		return nil
	})
	y.client("cn3", 16, func(c *Client, rt verbs.Runtime) error {
		y.wait(rt, 3)
		if err := c.Put(wornKey, padded("third"), inTwoMinutes(rt)); err != nil {
			return err
		}
		y.stage = 4
		y.wait(rt, 5)
		y.read(c, rt, "after the wearer's PUT was acknowledged", "by the wearer")
		return nil
	})
	if err := y.rack.Run(); err != nil {
		t.Fatal(err)
	}
}

// While every append of that node is lost, no reader and no writer may reach the node through the
// shortcut.
func TestShortcutOfAnEarlierEpochShowsNoUnlinkedNode(t *testing.T) {
	y := newEpochStory(t)
	y.client("cn1", 1, func(c *Client, rt verbs.Runtime) error {
		if err := y.wear(c, rt); err != nil {
			return err
		}
		y.stage = 2
		y.wait(rt, 4)
		y.box.drop = true
		err := c.Put(wornKey, padded("by the wearer"), inTwoMinutes(rt))
		if y.stage < 6 {
			t.Errorf("the PUT returned while its appends were lost: %v", err)
		}
		y.stage = 7
		return err
	})
	y.client("cn2", 16, func(c *Client, rt verbs.Runtime) error {
		y.wait(rt, 2)
		y.read(c, rt, "before", "second")
		y.stage = 3
		y.wait(rt, 4)
		for y.box.dropped == 0 {
			rt.Sleep(10 * time.Microsecond)
		}
		y.read(c, rt, "while the append is lost", "third")
		if err := c.Put(wornKey, padded("fourth"), inTwoMinutes(rt)); err != nil {
			return err
		}
		y.stage = 5
		return nil
	})
	y.client("cn3", 16, func(c *Client, rt verbs.Runtime) error {
		y.wait(rt, 3)
		if err := c.Put(wornKey, padded("third"), inTwoMinutes(rt)); err != nil {
			return err
		}
		y.stage = 4
		y.wait(rt, 5)
		y.read(c, rt, "after the fourth PUT was acknowledged", "fourth")
		y.stage, y.box.drop = 6, false
		y.wait(rt, 7)
		y.read(c, rt, "after the wearer's PUT was acknowledged", "by the wearer")
		return nil
	})
	if err := y.rack.Run(); err != nil {
		t.Fatal(err)
	}
}

// A writer follows a shortcut of its own epoch alone: the node that a shortcut of another epoch names
// may have been used again since, with the same version.
func TestShortcutsOfOtherEpochsAreNotFollowed(t *testing.T) {
	at := layout.Location{Handle: 3, Version: 7}
	for _, epoch := range []uint32{1, 2, layout.MaxStamp, layout.MaxStamp + 1, layout.MaxStamp + 3} {
		k := known{epoch: epoch}
		if l, ok := k.near(at.Stamped(epoch)); !ok || l != at {
			t.Errorf("epoch %d: the shortcut of the same epoch names %v, %v", epoch, l, ok)
		}
		for _, other := range []uint32{epoch - 1, epoch + 1} {
			if l, ok := k.near(at.Stamped(other)); ok {
				t.Errorf("epoch %d: the shortcut of epoch %d is followed to %v", epoch, other, l)
			}
		}
	}
}
