package clover_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The metadata server knows a node that has a successor by now. The shortcut names an older node of
// the key, whose successor has been reused for another key. A GET finds the value nevertheless, with
// few READs: it does not follow the same shortcut again.
func TestStaleShortcutIsFollowedOnce(t *testing.T) {
	const key, other, size = 1, 2, 40
	g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 16}, region)
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		return errors.Join(c.Insert(key, value(key, 0, size), soon(rt)), c.Insert(other, value(other, 0, size), soon(rt)), c.Put(key, value(key, 1, size), soon(rt)))
	})
	g.run()
	done := false
	g.clientOf("cn2", clover.Config{Records: 16}, func(c *clover.Client, rt verbs.Runtime) error {
		rt.Sleep(10 * time.Millisecond)                  // until the metadata server has followed the chain
		err := c.Put(key, value(key, 2, size), soon(rt)) // which the client reports when it ends
		for g.stale(value(key, 0, size), value(other, 0, size)); !done; rt.Sleep(time.Millisecond) {
		}
		return err
	})
	reads := func() uint64 {
		a, b := g.Host("ms0").Counters(), g.Host("ms1").Counters()
		return a.RxReadRequests + b.RxReadRequests
	}
	g.client("cn1", func(c *clover.Client, rt verbs.Runtime) error {
		rt.Sleep(20 * time.Millisecond) // until the append and the stale shortcut are there
		before := reads()
		v, err := c.Get(key, nil, rt.Now().Add(20*time.Millisecond))
		done = true
		if err != nil || !bytes.Equal(v, value(key, 2, size)) {
			t.Errorf("GET: %.20q, %v", v, err)
		}
		if n := reads() - before; n > 10 {
			t.Errorf("the GET took %d READs", n)
		}
		return nil
	})
	g.run()
}

// stale makes the node with the value was a valid node of the key again, whose successor is the node
// with the value foreign, and has the shortcuts of other nodes name it.
func (g *rig) stale(was, foreign []byte) {
	g.t.Helper()
	var super layout.Superblock
	if err := super.Parse(g.lent["ms0"]); err != nil {
		g.t.Fatal(err)
	}
	space := super.Space
	hosts := []string{"ms0", "ms1"}
	find := func(value []byte) (server, at int, l layout.Location) {
		for server, host := range hosts {
			b := g.lent[host]
			for at := bytes.Index(b, value); at >= 0; at-- {
				if h, _, ok := space.Handle(server, at); ok {
					return server, at, layout.Location{Handle: h, Version: layout.HeaderOf(b[at:]).EntryVersion()}
				}
			}
		}
		g.t.Fatalf("value %.20q is in no memory", value)
		return 0, 0, l
	}
	server, at, old := find(was)
	_, _, next := find(foreign)
	b := g.lent[hosts[server]]
	binary.LittleEndian.PutUint64(b[at:], uint64(layout.Superseded(old.Version, next)))
	for i := range space.Slots() {
		p, ok := space.Shortcut(i)
		if !ok {
			continue
		}
		word := g.lent[hosts[p.Server]][p.Offset:]
		l, stamp, ok := layout.StampedLocation(layout.Word(binary.LittleEndian.Uint64(word)))
		if !ok || l == next {
			continue
		}
		binary.LittleEndian.PutUint64(word, uint64(old.Stamped(stamp)))
	}
}
