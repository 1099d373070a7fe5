package clover_test

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// totalLoss makes a store in which ms1 is out and has old copies, its superblock says so, and ms0, whose
// copies alone count, loses its memory while the metadata server is down. Then restart is called. All
// keys are lost.
func totalLoss(t *testing.T, x *filter, restart func(y *copyStory, rt verbs.Runtime)) {
	oldOn1(t, x, rdmacm.Params{}, func(y *copyStory, c *clover.Client, rt verbs.Runtime) error {
		md0, ms0 := y.Host("md0"), y.Host("ms0")
		ms0.HangAll()
		ms0.Resume() // its NIC, but not the service: ms1 is not filled
		y.Host("ms1").ResumeAll()
		rt.Sleep(5 * y.cfg.Lease)
		if y.server.Snapshot().Away == 0 {
			t.Error("ms1 is back: the test proves nothing")
		}
		md0.Crash()
		ms0.Crash()
		ms0.Restart()
		y.memory("ms0")
		y.again, y.server = true, nil
		for restart(y, rt); y.server == nil; {
			rt.Sleep(time.Millisecond)
		}
		x.drop = nil
		return y.allLost(c, rt)
	})
}

// diesAt makes the metadata server crash, and start again, at its WRITE k from now on. Then died is set.
func (x *filter) diesAt(g *rig, k int, died *bool) {
	md0, writes := g.Host("md0"), 0
	x.drop = func(now clock.Time, f *wire.Frame) bool {
		if f.BTH.Opcode != wire.RCWriteOnly && f.BTH.Opcode != wire.RCWriteFirst || netip.AddrFrom4(f.IPv4.Src) != md0.Addr() {
			return false
		}
		if writes++; writes == k {
			*died = true
			g.At(now, func() {
				md0.Crash()
				md0.Restart()
				g.meta()
			})
		}
		return writes == k
	}
}

// A metadata server that restarts after a total loss dies while it fills the servers, at each of its
// WRITEs once, and restarts again. The keys stay lost: "not found" would mean that they never existed.
func TestALossIsKnownWhereverTheRestartedServerDies(t *testing.T) {
	for k, died := 1, true; died; k++ {
		died = false
		x := &filter{}
		totalLoss(t, x, func(y *copyStory, _ verbs.Runtime) {
			x.diesAt(y.rig, k, &died)
			y.Host("md0").Restart()
			y.meta()
		})
		if t.Failed() || k == 1 && !died {
			t.Fatalf("the restarted metadata server died at its WRITE %d: %v", k, died)
		}
	}
}

// ms1 does not answer for some time while the restarted metadata server reads the old records there. The
// metadata server does not come up without them: all keys would be "not found".
func TestOldRecordsAreNotLeftOut(t *testing.T) {
	for k := range 20 {
		testOldRecords(t, time.Duration(k+1)*80*time.Millisecond)
	}
}

func testOldRecords(t *testing.T, away time.Duration) {
	x, cut := &filter{}, false
	totalLoss(t, x, func(y *copyStory, _ verbs.Runtime) {
		md0, ms1, until := y.Host("md0").Addr(), y.Host("ms1").Addr(), clock.Time(0)
		x.drop = func(now clock.Time, f *wire.Frame) bool {
			src, dst := netip.AddrFrom4(f.IPv4.Src), netip.AddrFrom4(f.IPv4.Dst)
			if !cut && src == md0 && dst == ms1 && f.BTH.Opcode == wire.RCReadRequest && f.RETH.Length > layout.SuperblockLen {
				cut, until = true, now.Add(away)
			}
			return now < until && (src == ms1 || dst == ms1)
		}
		y.Host("md0").Restart()
		y.meta()
	})
	if !cut {
		t.Error("no old record was read: the test proves nothing")
	}
}

// A restarted metadata server hangs while it fills ms1, which was out, and another one takes over.
// Its connections to ms1 are ended: what it still has to send changes nothing there.
func TestASuccessorEndsTheFillingOfItsPredecessor(t *testing.T) {
	x := &filter{}
	oldOn1(t, x, rdmacm.Params{PathMTU: verbs.MTU1024, Timeout: 7, RetryCount: 7}, func(y *copyStory, _ *clover.Client, rt verbs.Runtime) error {
		md0, ms1 := y.Host("md0"), y.Host("ms1")
		hung, lost := false, true
		x.drop = func(now clock.Time, f *wire.Frame) bool {
			src, dst := netip.AddrFrom4(f.IPv4.Src), netip.AddrFrom4(f.IPv4.Dst)
			if !hung && src == md0.Addr() && dst == ms1.Addr() && f.BTH.Opcode == wire.RCWriteFirst {
				hung = true
				y.At(now, md0.HangAll)
			}
			return hung && lost && src == md0.Addr() // the WRITE, or the rest of it
		}
		md0.Crash()
		ms1.ResumeAll()
		md0.Restart()
		y.meta()
		for !hung {
			rt.Sleep(time.Millisecond)
		}
		y.server = nil
		y.metaOn("cn2")
		for y.server == nil {
			rt.Sleep(time.Millisecond)
		}
		for i := range y.lent["ms1"][layout.SuperblockLen:] { // what clients may have written since
			y.lent["ms1"][layout.SuperblockLen+i]++
		}
		before := bytes.Clone(y.lent["ms1"])
		lost = false
		md0.Resume() // its NIC, which sends the WRITE again
		rt.Sleep(y.cfg.Lease)
		if !bytes.Equal(before, y.lent["ms1"]) {
			t.Error("the predecessor changes the memory of ms1")
		}
		return nil
	})
}

// ms0 crashes while ms1 serves data but accepts no connections and ends none: its memory service does
// not run. With three copies ms2 has whole ones, so the store goes on without both. With two copies
// ms1 has the only copies of some nodes, and the store waits for it. Nothing is lost.
func TestAHungServiceAndACrash(t *testing.T) {
	for replicas := 2; replicas <= 3; replicas++ {
		y := newCopyStory(t, replicas)
		y.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
			if err := y.write(c, rt, 1); err != nil {
				return err
			}
			ms0, ms1 := y.Host("ms0"), y.Host("ms1")
			ms1.HangAll()
			ms1.Resume() // its NIC, but not the service
			ms0.Crash()
			for end := rt.Now().Add(10 * time.Second); replicas == 3 && y.server.Snapshot().Away < 2; rt.Sleep(time.Millisecond) {
				if rt.Now() > end {
					return errors.New("the change is not over after ten seconds")
				}
			}
			if replicas == 3 {
				if err := y.write(c, rt, 2); err != nil {
					return err
				}
			} else if rt.Sleep(10 * time.Second); y.server.Snapshot().Away > 0 {
				t.Error("ms1 is out, although it has the only copies of some nodes")
			}
			ms1.ResumeAll()
			ms0.Restart()
			y.memory("ms0")
			for rt.Sleep(time.Second); y.server.Snapshot().Away > 0; rt.Sleep(time.Millisecond) {
			}
			lost, err := y.read(c, rt)
			if lost > 0 {
				t.Errorf("%d copies: %d keys lost", replicas, lost)
			}
			if err == nil {
				err = y.write(c, rt, 3)
			}
			return err
		})
		y.run()
	}
}

// The memory holds a store of a former arrangement. The metadata server neither reads it nor formats
// it, and says what to do; with Fresh it formats it.
func TestAStoreOfAFormerArrangementIsKept(t *testing.T) {
	for _, fresh := range []bool{false, true} {
		g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 64}, region)
		h := g.Host("md0")
		var err error
		h.Go("again", false, func(ctx verbs.Context) {
			for g.server == nil {
				ctx.Runtime().Sleep(time.Millisecond)
			}
			h.CrashApps()
		})
		g.Host("cn0").Go("next", false, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			rt.Sleep(100 * time.Millisecond)
			for _, m := range g.lent {
				copy(m, "RMCLVR02")
			}
			cfg := g.cfg
			cfg.Context, cfg.Manager, cfg.Fresh = ctx, g.Host("cn0").Manager(ctx), fresh
			cfg.Servers = []netip.Addr{g.Host("ms0").Addr(), g.Host("ms1").Addr()}
			_, err = meta.New(cfg)
		})
		g.run()
		switch kept := bytes.HasPrefix(g.lent["ms0"], []byte("RMCLVR02")); {
		case fresh != (err == nil), kept == fresh:
			t.Errorf("fresh %v: %v; the store is kept: %v", fresh, err, kept)
		case !fresh && (!errors.Is(err, layout.ErrVersion) || !strings.Contains(err.Error(), "--fresh")):
			t.Errorf("%v: does not say what is there, and what to do", err)
		}
	}
}
