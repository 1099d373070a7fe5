package clover_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// A memory server loses its memory; some of the lost keys are inserted again; then the metadata
// server restarts. The inserted keys have their new values, and the others are still reported as
// lost.
func TestMetadataServerRestartsAfterALoss(t *testing.T) {
	const keys, size, lease = 16, 40, 200 * time.Millisecond
	g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 64, Shares: [layout.Classes]int{1}, Lease: lease, Grace: lease}, 16<<10)
	// Spread: records and nodes are not always on the same server.
	g.clientOf("cn0", clover.Config{Spread: true, Batch: 16, Records: 1}, func(c *clover.Client, rt verbs.Runtime) error {
		for k := range uint64(keys) {
			if k%4 == 2 { // the node goes to the end of the client's list: records and nodes are not always on the same server
				if err := c.Insert(0, value(0, 0, size), soon(rt)); !errors.Is(err, kv.ErrExists) {
					return err
				}
			}
			if err := c.Insert(k, value(k, 0, size), soon(rt)); err != nil {
				return err
			}
			for n := 1; n < 4; n++ {
				if err := c.Put(k, value(k, n, size), soon(rt)); err != nil {
					return err
				}
			}
		}
		g.At(rt.Now(), g.Host("ms1").Crash)
		rt.Sleep(time.Millisecond)
		g.At(rt.Now(), func() {
			g.Host("ms1").Restart()
			g.memory("ms1")
		})
		rt.Sleep(time.Millisecond)
		lost := make(map[uint64]bool)
		for k := range uint64(keys) {
			_, err := c.Get(k, nil, soon(rt))
			if errors.Is(err, kv.ErrLost) {
				lost[k] = true
				continue
			}
			if err != nil {
				return fmt.Errorf("key %d: %w", k, err)
			}
		}
		if len(lost) < 4 {
			return fmt.Errorf("lost: %v", lost)
		}
		if e := g.server.Snapshot().Epoch; e < 2 { // a shortcut on ms0 may name a node that begins again on ms1
			t.Errorf("shortcuts from before the loss count in epoch %d as well", e)
		}
		want := make(map[uint64][]byte)
		for k := range uint64(keys) {
			switch {
			case !lost[k]:
				want[k] = value(k, 3, size)
			case k%3 == 1:
				want[k] = value(k, 9, size)
				if err := c.Insert(k, want[k], soon(rt)); err != nil {
					return fmt.Errorf("key %d again: %w", k, err)
				}
			}
		}
		// The only record of such a key is the one that formatting the lost memory has written.
		formatted := recordsOf(g, "ms1")
		if !slices.ContainsFunc(slices.Collect(maps.Keys(lost)), func(k uint64) bool { return want[k] == nil && formatted[k] }) {
			t.Error("no key that stays lost has its node and its record on ms1")
		}
		g.At(rt.Now(), g.Host("md0").Crash)
		rt.Sleep(time.Millisecond)
		g.At(rt.Now(), func() {
			g.Host("md0").Restart()
			g.meta()
		})
		rt.Sleep(4 * lease)
		for k := range uint64(keys) {
			v, err := c.Get(k, nil, soon(rt))
			if want[k] == nil && errors.Is(err, kv.ErrLost) {
				continue
			}
			if err != nil || want[k] == nil || !bytes.Equal(v, want[k]) {
				t.Errorf("key %d, lost %v: is %.20q, want %.20q: %v", k, lost[k], v, want[k], err)
			}
		}
		return nil
	})
	g.run()
	if err := g.Settle(8 * lease); err != nil {
		t.Fatal(err)
	}
	if st := g.server.Snapshot(); st.Broken > 0 || st.Held > 0 || st.Linked != st.Keys-st.LostKeys {
		t.Errorf("%+v", st)
	}
}

// recordsOf returns the keys whose records are in the directory of a memory server.
func recordsOf(g *rig, name string) map[uint64]bool {
	keys := make(map[uint64]bool)
	var super layout.Superblock
	if err := super.Parse(g.lent[name]); err != nil {
		g.t.Error(err)
		return nil
	}
	for slot := range super.Space.Slots() {
		p, _ := super.Space.Record(slot)
		if rec, ok := layout.ParseKeyRecord(g.lent[name][p.Offset:]); ok && p.Server == super.Server {
			keys[rec.Key] = true
		}
	}
	return keys
}

// A memory server loses its memory while no metadata server runs, and the next one is started for
// another number of keys. It must find the directory and the mirrors where they are: no key may be
// unknown, and the keys of the other server have their values.
func TestMetadataServerTakesTheStoredArrangement(t *testing.T) {
	const keys, size, lease = 16, 40, 200 * time.Millisecond
	for _, loses := range []bool{false, true} {
		g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 64, Shares: [layout.Classes]int{1}, Lease: lease, Grace: lease}, 16<<10)
		g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
			for k := range uint64(keys) {
				if err := errors.Join(c.Insert(k, value(k, 0, size), soon(rt)), c.Put(k, value(k, 1, size), soon(rt))); err != nil {
					return err
				}
			}
			rt.Sleep(lease)
			g.At(rt.Now(), g.Host("md0").Crash)
			if loses {
				g.At(rt.Now(), g.Host("ms1").Crash)
			}
			rt.Sleep(time.Millisecond)
			g.cfg.Keys = 128
			g.At(rt.Now(), func() {
				if loses {
					g.Host("ms1").Restart()
					g.memory("ms1")
				}
				g.Host("md0").Restart()
				g.meta()
			})
			rt.Sleep(4 * lease)
			lost := 0
			for k := range uint64(keys) {
				v, err := c.Get(k, nil, soon(rt))
				if loses && errors.Is(err, kv.ErrLost) {
					lost++
					continue
				}
				if err != nil || !bytes.Equal(v, value(k, 1, size)) {
					t.Errorf("memory lost %v: key %d is %.20q: %v", loses, k, v, err)
				}
			}
			if loses && (lost == 0 || lost == keys) {
				t.Errorf("%d of %d keys are lost with one of two servers", lost, keys)
			}
			return nil
		})
		g.run()
	}
}

// All memory is lost while no metadata server runs: so nothing in memory says how many incarnations
// it has had. The next incarnation must not take clients of the last one for its own clients, which
// now have the nodes that those had.
func TestAllMemoryIsLostWithTheMetadataServer(t *testing.T) {
	const key, size = 1, 40
	g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 64, Shares: [layout.Classes]int{1}}, 16<<10)
	hosts := []string{"ms0", "ms1", "md0"}
	lost, ended := false, false
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		if err := c.Insert(key, value(key, 0, size), soon(rt)); err != nil {
			return err
		}
		for _, name := range hosts {
			g.At(rt.Now(), g.Host(name).Crash)
		}
		rt.Sleep(time.Millisecond)
		g.At(rt.Now(), func() {
			for _, name := range hosts {
				g.Host(name).Restart()
			}
			g.memory("ms0")
			g.memory("ms1")
			// In the simulator the first application of a host always draws the same random
			// numbers.
			g.Host("md0").Go("other", true, func(verbs.Context) {})
			g.meta()
		})
		rt.Sleep(10 * time.Millisecond)
		lost = true
		rt.Sleep(100 * time.Millisecond)
		_, _ = c.Stats(rt.Now().Add(time.Second)) // connects again
		err := c.Close()
		ended = true
		return err
	})
	h := g.Host("cn1")
	h.Go("client", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		for ; !lost; rt.Sleep(time.Millisecond) {
		}
		c, err := clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: g.Host("md0").Addr()}, soon(rt))
		if err == nil {
			err = c.Insert(key, value(key, 1, size), soon(rt))
		}
		if err != nil {
			t.Error(err)
			return
		}
		held := g.server.Snapshot().Held
		for ; !ended; rt.Sleep(time.Millisecond) {
		}
		if now := g.server.Snapshot().Held; held == 0 || now != held {
			t.Errorf("a client holds %d nodes, and %d after a client of an earlier incarnation has sent OpBye", held, now)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	g.run()
}

// A store is formatted again while a client of the previous one has a lease: that client goes on
// writing its nodes and appending to its keys, and must not change nodes of the new store.
func TestFreshStoreUnderAClient(t *testing.T) {
	const keys, size, lease = 8, 40, 200 * time.Millisecond
	g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 64, Shares: [layout.Classes]int{1}, Lease: lease, Grace: lease}, 16<<10)
	made, ended := false, false
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		for k := range uint64(keys) {
			if err := c.Insert(k, value(k, 0, size), soon(rt)); err != nil {
				return err
			}
		}
		g.cfg.Fresh = true
		g.At(rt.Now(), g.Host("md0").Crash)
		rt.Sleep(time.Millisecond)
		g.At(rt.Now(), func() {
			g.Host("md0").Restart()
			g.meta()
			made = true
		})
		// The client was given 16 nodes when it began, and goes on until these are used up and its
		// lease has ended.
		for n, end := 1, rt.Now().Add(lease); rt.Now() < end; n++ {
			_ = c.Put(uint64(n%keys), value(99, n, size), rt.Now().Add(time.Millisecond))
			rt.Sleep(5 * time.Millisecond)
		}
		ended = true
		return nil
	})
	h := g.Host("cn1")
	h.Go("client", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		for ; !made; rt.Sleep(time.Millisecond) {
		}
		c, err := clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: g.Host("md0").Addr()}, soon(rt))
		if err != nil {
			t.Error(err)
			return
		}
		for k := range uint64(keys) {
			if err := c.Insert(100+k, value(k, 1, size), soon(rt)); err != nil {
				t.Error(err)
			}
		}
		for ; !ended; rt.Sleep(time.Millisecond) {
		}
		for k := range uint64(keys) {
			if v, err := c.Get(100+k, nil, rt.Now().Add(time.Second)); err != nil || !bytes.Equal(v, value(k, 1, size)) {
				t.Errorf("key %d of the new store is %.20q: %v", 100+k, v, err)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	g.run()
	if st := g.server.Snapshot(); st.Broken > 0 || st.Keys != keys {
		t.Errorf("%+v", st)
	}
}
