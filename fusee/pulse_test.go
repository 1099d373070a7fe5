package fusee_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// The master recovers a client that has died, although no other waits for it; a client that works keeps
// its number, unless a memory server crashes; one that is idle for longer than its lease loses its number and no operation.
func TestTheMasterRecoversDeadClients(t *testing.T) {
	for _, kill := range []string{"applications", "NIC"} {
		g := newRig(t, 3, simrack.Options{})
		g.format(fusee.FormatConfig{Groups: 8, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
		ready, done := false, false
		g.master("cn3", &ready)
		var dead uint32
		h := g.Host("cn1")
		h.Go("dies", true, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			for !ready {
				rt.Sleep(time.Millisecond)
			}
			c, err := fusee.Open(g.config(h, ctx), soon(rt))
			for n := uint64(100); err == nil; n++ {
				dead = c.Number()
				if err = c.Insert(n, kv.MakeValue(n, 1, 100), soon(rt)); n == 120 && err == nil {
					g.At(g.Now().Add(5*time.Microsecond), func() { // in the middle of the next operation
						if kill == "NIC" {
							h.Crash()
						} else {
							h.CrashApps()
						}
					})
				}
			}
		})
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error { // works
			for !ready {
				rt.Sleep(time.Millisecond)
			}
			number := c.Number()
			for n := uint64(1 << 30); !done; n++ {
				err := c.Insert(n, kv.MakeValue(n, 1, 100), soon(rt))
				if err = errors.Join(err, c.Delete(n, soon(rt))); err != nil {
					return err
				}
				rt.Sleep(20 * time.Millisecond)
			}
			if c.Number() != number && kill != "NIC" {
				t.Errorf("the client that works had the number %d, and has %d", number, c.Number())
			}
			return nil
		})
		g.client("cn2", func(c *fusee.Client, rt verbs.Runtime) error { // is idle
			for !ready {
				rt.Sleep(time.Millisecond)
			}
			defer func() { done = true }()
			if err := c.Insert(1<<20, kv.MakeValue(1<<20, 1, 100), soon(rt)); err != nil {
				return err
			}
			number := c.Number()
			if kill == "NIC" {
				g.Host("ms1").Crash()
			}
			rt.Sleep(8 * time.Second)
			if _, err := c.Get(1<<20, nil, soon(rt)); err != nil {
				return fmt.Errorf("idle, then GET: %w", err)
			}
			out, err := c.Audit(soon(rt))
			if err != nil || out.Owners[dead] != 0 || dead == 0 || out.Keys < 21 {
				return fmt.Errorf("%s: after 8 s: %+v, %w; want no blocks of client %d", kill, out, err, dead)
			}
			if err := errors.Join(c.Put(1<<20, kv.MakeValue(1<<20, 2, 100), soon(rt)), c.Insert(2<<20, nil, soon(rt))); err != nil {
				return fmt.Errorf("idle, then: %w", err)
			}
			if c.Number() == number {
				t.Errorf("the idle client has its number yet")
			}
			return nil
		})
		g.run()
	}
}

// The master ends the recovery of clients whose blocks take longer than its patience, a part of a block at a
// time, and recovers others meanwhile.
func TestTheMasterRecoversLongBlocks(t *testing.T) {
	g := newRigOf(t, 3, 4<<20, simrack.Options{Delay: 50 * time.Microsecond})
	g.format(fusee.FormatConfig{Groups: 40, Replicas: 2, IndexReplicas: 2, Block: 256 << 10})
	ready := false
	var dead, recovered []uint32
	h := g.Host("cn3")
	h.Go("master", true, func(ctx verbs.Context) {
		cfg := g.config(h, ctx)
		cfg.Lease, cfg.ClientLease = 100*time.Millisecond, time.Second
		m, err := fusee.OpenMaster(cfg, soon(ctx.Runtime()))
		if ready = true; err == nil {
			m.Recovered = func(owner uint32) { recovered = append(recovered, owner) }
			m.Failed = func(err error) { t.Error("the master reports", err) }
			err = m.Run()
		}
		if err != nil && !errors.Is(err, verbs.ErrClosed) {
			t.Error("master:", err)
		}
	})
	for i := range 2 {
		h := g.Host(fmt.Sprintf("cn%d", i))
		h.Go("dies", true, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			for !ready {
				rt.Sleep(time.Millisecond)
			}
			c, err := fusee.Open(g.config(h, ctx), soon(rt))
			for n := uint64(0); n < 100 && err == nil; n++ {
				err = c.Insert(uint64(i)<<20+n, kv.MakeValue(n, 1, 100), soon(rt))
			}
			if err != nil {
				t.Error(err)
				return
			}
			dead = append(dead, c.Number())
			h.CrashApps()
		})
	}
	g.client("cn2", func(c *fusee.Client, rt verbs.Runtime) error {
		rt.Sleep(12 * time.Second)
		out, err := c.Audit(soon(rt))
		slices.Sort(dead)
		slices.Sort(recovered)
		if len(out.Owners) > 0 || len(dead) != 2 || !slices.Equal(dead, recovered) {
			t.Errorf("the dead clients are %d; %d were recovered, and blocks have the owners %v", dead, recovered, out.Owners)
		}
		return err
	})
	g.run()
}

// A client that works keeps its number, however short the lease of the master is: clients show that they are
// alive by a lease of their own.
func TestAShortLeaseOfTheMasterEndsNoClient(t *testing.T) {
	g := newRig(t, 3, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 8, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
	ready := false
	var m *fusee.Master
	var ended error
	g.keep("cn3", 2*time.Millisecond, &ready, &m, &ended)
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		for !ready {
			rt.Sleep(time.Millisecond)
		}
		number := c.Number()
		for n := range uint64(1000) {
			if err := errors.Join(c.Insert(n, nil, soon(rt)), c.Delete(n, soon(rt))); err != nil {
				return err
			}
			rt.Sleep(time.Millisecond)
		}
		if c.Number() != number {
			t.Errorf("a client that works had the number %d, and has %d", number, c.Number())
		}
		return nil
	})
	g.run()
	if ended != nil && !errors.Is(ended, verbs.ErrClosed) {
		t.Error("master:", ended)
	}
}

// Leases that no client and no master can hold are refused.
func TestBadLeases(t *testing.T) {
	g := newRig(t, 1, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 8, Block: 16 << 10})
	h := g.Host("cn0")
	h.Go("refused", false, func(ctx verbs.Context) {
		cfg := g.config(h, ctx)
		cfg.Lease = -time.Second
		if _, err := fusee.Open(cfg, soon(ctx.Runtime())); err == nil || !strings.Contains(err.Error(), "lease of -1s: want") {
			t.Errorf("a client: %v", err)
		}
		for _, lease := range []time.Duration{-time.Second, 1, fusee.MinMasterLease - 1} {
			cfg.Lease = lease
			if _, err := fusee.OpenMaster(cfg, soon(ctx.Runtime())); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("lease of %v: want", lease)) {
				t.Errorf("a master with a lease of %v: %v", lease, err)
			}
		}
	})
	g.run()
}
