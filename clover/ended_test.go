package clover

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

func plain(n simnet.Node) simnet.Node { return n }

// A client whose connection to a memory server has broken may have requests in flight there: it must
// not tell the metadata server that it is quiet. A quiet client keeps its owner number, because no
// fence is due; the other one gets a new one.
func TestABrokenClientIsNotQuiet(t *testing.T) {
	y := newEpochStoryOn(t, plain)
	y.client("cn0", 16, func(c *Client, rt verbs.Runtime) error {
		if err := c.Insert(wornKey, padded("first"), inTwoMinutes(rt)); err != nil {
			return err
		}
		for _, broken := range []bool{false, true, false} {
			owner := c.session.lease.owner
			if broken {
				if err := c.session.fab.Break(c.session.servers[0].peer); err != nil {
					return err
				}
			}
			if c.session.quiet() == broken {
				t.Errorf("broken %v: quiet %v", broken, c.session.quiet())
			}
			if err := c.session.hello(inTwoMinutes(rt)); err != nil {
				return err
			}
			if (c.session.lease.owner == owner) == broken {
				t.Errorf("broken %v: the owner is %d, and it was %d", broken, c.session.lease.owner, owner)
			}
			if err := c.Put(wornKey, padded("next"), inTwoMinutes(rt)); err != nil { // over a new connection
				return err
			}
		}
		return nil
	})
	if err := y.rack.Run(); err != nil {
		t.Fatal(err)
	}
}

// An OpHello ends the client's former number at the metadata server, also if the client never gets the
// answer. So the former lease is over when the client sends it: the client reads nothing until it is
// welcome.
func TestHelloEndsTheLease(t *testing.T) {
	y := newEpochStoryOn(t, plain)
	y.client("cn0", 16, func(c *Client, rt verbs.Runtime) error {
		if err := c.Insert(wornKey, padded("first"), inTwoMinutes(rt)); err != nil {
			return err
		}
		k, known := c.finder.cached(wornKey)
		if !known {
			return errors.New("no location is remembered")
		}
		md := y.rack.Host("md0")
		y.rack.At(rt.Now(), func() { md.SetLink(false) })
		if err := c.session.hello(rt.Now().Add(5 * time.Millisecond)); !errors.Is(err, kv.ErrTimeout) {
			return fmt.Errorf("no answer: %w", err)
		}
		if _, _, err := c.finder.readHeader(k.epoch, k.at, -1, rt.Now().Add(5*time.Millisecond)); !errors.Is(err, errLease) {
			t.Errorf("a READ after a hello without an answer: %v", err)
		}
		y.rack.At(rt.Now(), func() { md.SetLink(true) })
		_, err := c.Get(wornKey, nil, inTwoMinutes(rt))
		return err
	})
	if err := y.rack.Run(); err != nil {
		t.Fatal(err)
	}
}

// A node that was given out under a lease that has ended may be another client's: its former holder
// neither keeps it, nor uses it, nor appends it.
func TestNodesOfAnEndedLeaseAreNotUsed(t *testing.T) {
	y := newEpochStoryOn(t, plain)
	y.client("cn0", 16, func(c *Client, rt verbs.Runtime) error {
		if err := c.Insert(wornKey, padded("first"), inTwoMinutes(rt)); err != nil {
			return err
		}
		n, err := c.appender.fresh(wornKey, padded("never"), false, inTwoMinutes(rt))
		if err != nil {
			return err
		}
		spare, err := c.appender.take(n.class, wornKey, false, inTwoMinutes(rt))
		if err != nil {
			return err
		}
		c.session.spare[n.class] = append(c.session.spare[n.class], spare)
		if err := c.session.hello(inTwoMinutes(rt)); err != nil {
			return err
		}
		if got := c.session.spare[n.class]; len(got) > 0 {
			t.Errorf("%v may be used under the next lease", got)
		}
		if c.appender.keep(n); len(c.session.spare[n.class]) > 0 {
			t.Errorf("%v is kept", c.session.spare[n.class])
		}
		if _, err := c.appender.link(wornKey, n, inTwoMinutes(rt)); !errors.Is(err, errLease) {
			t.Errorf("the append of %v: %v", n.at, err)
		}
		v, err := c.Get(wornKey, nil, inTwoMinutes(rt))
		if err != nil || !strings.HasPrefix(string(v), "first") {
			t.Errorf("the key is %.10q: %v", v, err)
		}
		return nil
	})
	if err := y.rack.Run(); err != nil {
		t.Fatal(err)
	}
}

// The memory in which a client has written a node is lost, and the metadata server has handled
// that: it has taken all nodes of this memory from their clients. It must not tell this client that
// its node was linked, neither after an INSERT nor after an append without an answer.
func TestClientsAreToldOfLostMemory(t *testing.T) {
	for _, op := range []rpc.Op{rpc.OpOpen, rpc.OpQuery} {
		y := newEpochStoryOn(t, plain)
		y.lease = 10 * time.Second
		y.client("cn0", 16, func(c *Client, rt verbs.Runtime) error {
			n, err := c.appender.fresh(wornKey, padded("lost"), false, inTwoMinutes(rt))
			if err != nil {
				return err
			}
			ms := y.rack.Host("ms0")
			y.rack.At(rt.Now(), ms.Crash)
			rt.Sleep(time.Millisecond)
			y.rack.At(rt.Now(), func() {
				ms.Restart()
				y.memory()
			})
			for losses := uint64(0); losses == 0; rt.Sleep(time.Millisecond) {
				st, err := c.Stats(inTwoMinutes(rt))
				if err != nil {
					return err
				}
				losses = st.Losses
			}
			if !c.session.lease.Valid(rt.Now()) {
				t.Error("the lease has ended before the loss was handled")
			}
			a, err := c.session.request(&rpc.Request{Op: op, Key: wornKey, At: n.at}, inTwoMinutes(rt))
			if err != nil || a.Status != rpc.Unknown {
				t.Errorf("%v with a node of lost memory: %v %v", op, a.Status, err)
			}
			if err := c.Insert(wornKey, padded("again"), inTwoMinutes(rt)); err != nil && !errors.Is(err, kv.ErrTimeout) {
				t.Error(err)
			}
			return nil
		})
		if err := y.rack.Run(); err != nil {
			t.Fatal(err)
		}
	}
}

// A shortcut names a node that a client has written and never linked, in a version that it had in an
// earlier epoch. The metadata server restarts, and counts its epochs from the beginning: no reader may
// take that shortcut for one of the present epoch.
func TestShortcutsDoNotOutliveTheMetadataServer(t *testing.T) {
	y := newEpochStory(t)
	y.before = 2400 // so that no node has its last version at the restart, which would make an epoch begin
	y.client("cn1", 1, func(c *Client, rt verbs.Runtime) error {
		if err := y.wear(c, rt); err != nil {
			return err
		}
		n, err := c.appender.fresh(wornKey, padded("never"), false, inTwoMinutes(rt))
		if err != nil || n.at != y.first {
			t.Errorf("%v is written, want %v: %v", n.at, y.first, err)
		}
		md := y.rack.Host("md0")
		y.rack.At(rt.Now(), y.rack.Host("cn1").CrashApps)
		y.rack.At(rt.Now(), md.Crash)
		y.rack.At(rt.Now()+1, func() {
			md.Restart()
			y.meta()
			y.stage = 2
		})
		rt.Sleep(y.lease)
		return nil
	})
	y.client("cn2", 16, func(c *Client, rt verbs.Runtime) error {
		y.wait(rt, 2)
		y.read(c, rt, "after the restart", "second")
		for y.stage = 3; y.stage < 4; rt.Sleep(y.lease / 10) { // the client keeps its lease, and what it remembers
			if _, err := c.Get(otherKey, nil, inTwoMinutes(rt)); err != nil {
				return err
			}
		}
		y.read(c, rt, "with a successor", "third")
		if c.session.lease.epoch != y.epoch {
			t.Errorf("the epoch is %d, and no client follows a shortcut of epoch %d", c.session.lease.epoch, y.epoch)
		}
		return nil
	})
	y.client("cn3", 16, func(c *Client, rt verbs.Runtime) error {
		y.wait(rt, 3)
		for l := (layout.Location{}); l.Handle != y.first.Handle; { // so that the node is not written again
			var err error
			if l, err = c.appender.take(0, otherKey, false, inTwoMinutes(rt)); err != nil {
				return err
			}
		}
		err := c.Put(wornKey, padded("third"), inTwoMinutes(rt)) // the client writes the shortcut later, with the report
		y.stage = 4
		rt.Sleep(y.lease / 4)
		return err
	})
	if err := y.rack.Run(); err != nil {
		t.Fatal(err)
	}
}

// A client dies that has appended a node and not reported it. When the metadata server takes back
// the nodes of this client, it must notice that this node is in a chain; otherwise it would give
// out a linked node.
func TestNodesThatADeadClientHasLinkedStay(t *testing.T) {
	y := newEpochStoryOn(t, plain)
	y.client("cn0", 16, func(c *Client, rt verbs.Runtime) error {
		if err := c.Insert(wornKey, padded("first"), inTwoMinutes(rt)); err != nil {
			return err
		}
		// the metadata server follows all chains when a client is new, and when one has gone
		for range 12 {
			rt.Sleep(y.lease / 4)
			y.read(c, rt, "while the other client goes", "first")
		}
		if err := c.Put(wornKey, padded("second"), inTwoMinutes(rt)); err != nil {
			return err
		}
		y.rack.At(rt.Now(), y.rack.Host("cn0").CrashApps)
		rt.Sleep(time.Hour)
		return nil
	})
	y.client("cn1", 1, func(c *Client, rt verbs.Runtime) error {
		rt.Sleep(8 * y.lease)
		if err := c.Insert(otherKey, padded("other"), inTwoMinutes(rt)); err != nil {
			return err
		}
		for n := range 100 { // until all nodes have been given out again
			if err := c.Put(otherKey, padded(fmt.Sprint(n)), inTwoMinutes(rt)); err != nil {
				return err
			}
		}
		y.read(c, rt, "when the other key has used all nodes", "second")
		st, err := c.Stats(inTwoMinutes(rt))
		if st.Broken > 0 {
			t.Errorf("%+v", st)
		}
		return err
	})
	if err := y.rack.Run(); err != nil {
		t.Fatal(err)
	}
}
