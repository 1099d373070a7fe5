package clover_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The metadata server is cut off from all memory servers. When its link is back, one of them answers
// before the others do, but these answer within half a lease. None of them goes out: otherwise the
// only server that counts would have the only copies of all later changes, although no memory server
// has failed.
func TestACutOffMetadataServerPutsNoServerOut(t *testing.T) {
	const lease, later = 200 * time.Millisecond, 60 * time.Millisecond
	x := &filter{}
	opt := x.options()
	opt.Datagrams = true // the requests that make connections are lost, too
	g := newRigOf(t, threeServers, opt, meta.Config{Format: layout.Hardened, Keys: 64, Replicas: 3, Lease: lease, Grace: lease}, region)
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		if err := c.Insert(1, value(1, 0, 40), soon(rt)); err != nil {
			return err
		}
		md, first := g.Host("md0").Addr(), g.Host("ms0").Addr()
		back := rt.Now().Add(3 * lease)
		x.drop = func(now clock.Time, f *wire.Frame) bool {
			a, b := netip.AddrFrom4(f.IPv4.Src), netip.AddrFrom4(f.IPv4.Dst)
			ends := back
			if a != first && b != first {
				ends = back.Add(later)
			}
			return now < ends && (a == md || b == md)
		}
		for rt.Now() < back.Add(5*lease) {
			if n := g.server.Snapshot().Away; n > 0 {
				return fmt.Errorf("%d memory servers are out %v after the metadata server's link is back", n, rt.Now().Sub(back))
			}
			rt.Sleep(time.Millisecond)
		}
		return c.Put(1, value(1, 1, 40), soon(rt))
	})
	g.run()
}

// The metadata server's link is cut while clients' hellos and sweeps make it try the memory servers
// again and again, so that it looks at them less often than each half lease. When the link is back, the
// server that it tries last is not silent because the other one has answered first: with two copies, a
// server that goes out then takes the last acknowledged change with it when the other one crashes.
func TestACutBehindLongAttemptsPutsNoServerOut(t *testing.T) {
	for _, c := range []struct {
		rack     string
		replicas int
		lease    time.Duration
	}{{rackYAML, 2, 200 * time.Millisecond}, {rackYAML, 2, 2 * time.Second}, {threeServers, 3, 40 * time.Millisecond}} {
		for k := range 12 {
			cut := c.lease*3/2 + time.Duration(k)*(c.lease/8+731*time.Microsecond)
			if n := awayAfterCut(t, c.rack, c.replicas, c.lease, cut); n > 0 {
				t.Errorf("%d copies, lease %v, cut of %v: %d memory servers are out", c.replicas, c.lease, cut, n)
			}
		}
	}
}

// awayAfterCut cuts the metadata server's link, and returns how many memory servers go out within three
// leases after the cut.
func awayAfterCut(t *testing.T, rack string, replicas int, lease, cut time.Duration) (away int) {
	x := &filter{}
	opt := x.options()
	opt.Datagrams = true
	g := newRigOf(t, rack, opt, meta.Config{Format: layout.Hardened, Keys: 64, Replicas: replicas, Lease: lease, Grace: 3 * lease}, region)
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		for key := uint64(1); key <= 30; key++ {
			if err := c.Insert(key, value(key, 0, 40), soon(rt)); err != nil {
				return err
			}
		}
		opened := false
		g.client("cn1", func(_ *clover.Client, rt verbs.Runtime) error {
			opened = true
			rt.Sleep(20 * lease)
			return nil
		})
		for !opened {
			rt.Sleep(10 * time.Microsecond)
		}
		md, back := g.Host("md0").Addr(), rt.Now().Add(cut)
		x.drop = func(now clock.Time, f *wire.Frame) bool {
			a, b := netip.AddrFrom4(f.IPv4.Src), netip.AddrFrom4(f.IPv4.Dst)
			return now < back && (a == md || b == md)
		}
		for rt.Now() < back.Add(3*lease) {
			away = max(away, int(g.server.Snapshot().Away))
			rt.Sleep(100 * time.Microsecond)
		}
		return nil
	})
	g.run()
	return away
}

// oldOn1 makes a store with two copies of each node on two servers, in which ms1 hangs and is out. It has
// old copies of 20 keys. Then next is called.
func oldOn1(t *testing.T, x *filter, params rdmacm.Params, next func(y *copyStory, c *clover.Client, rt verbs.Runtime) error) {
	const lease = 200 * time.Millisecond
	cfg := meta.Config{Format: layout.Hardened, Keys: 64, Replicas: 2, Lease: lease, Grace: lease, Params: params}
	y := &copyStory{newRigOf(t, rackYAML, x.options(), cfg, region), map[uint64][]byte{}}
	y.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		if err := y.write(c, rt, 1); err != nil {
			return err
		}
		y.Host("ms1").HangAll()
		for y.server.Snapshot().Away == 0 {
			rt.Sleep(time.Millisecond)
		}
		if err := y.write(c, rt, 2); err != nil {
			return err
		}
		return next(y, c, rt)
	})
	y.run()
}

// allLost checks that all keys are lost, and are there again when they were inserted.
func (y *copyStory) allLost(c *clover.Client, rt verbs.Runtime) error {
	if lost, err := y.read(c, rt); lost != 20 || err != nil {
		return fmt.Errorf("%d of 20 keys are lost: %w", lost, err)
	}
	for key := range y.want {
		if err := c.Insert(key, y.want[key], soon(rt)); err != nil {
			return err
		}
	}
	lost, err := y.read(c, rt)
	if lost > 0 {
		y.t.Errorf("%d keys lost after they were inserted again", lost)
	}
	return err
}

// ms1 answers again, and is not filled, because the memory service of ms0 does not answer. Then ms0,
// whose copies alone count, loses its memory, and the metadata server crashes. The restarted metadata
// server does not believe the old copies: the keys are lost. It knows them by the old records.
func TestOldCopiesAreMarked(t *testing.T) {
	totalLoss(t, &filter{}, func(y *copyStory, _ verbs.Runtime) {
		y.Host("md0").Restart()
		y.meta()
	})
}

// The same happens when the filling of ms1 has just begun.
func TestOldCopiesStayMarkedWhileTheyAreReplaced(t *testing.T) {
	x := &filter{}
	oldOn1(t, x, rdmacm.Params{}, func(y *copyStory, c *clover.Client, rt verbs.Runtime) error {
		md0, ms0, ms1 := y.Host("md0"), y.Host("ms0"), y.Host("ms1")
		crashed := false
		x.drop = func(now clock.Time, f *wire.Frame) bool {
			if !crashed && f.BTH.Opcode == wire.RCWriteFirst && netip.AddrFrom4(f.IPv4.Dst) == ms1.Addr() && netip.AddrFrom4(f.IPv4.Src) == md0.Addr() {
				crashed = true // at the first WRITE of several packets: records, mirrors or nodes
				y.At(now, func() {
					md0.Crash()
					ms0.Crash()
					ms0.Restart()
					y.memory("ms0")
					md0.Restart()
					y.meta()
				})
			}
			return false
		}
		ms1.ResumeAll()
		for !crashed {
			rt.Sleep(time.Millisecond)
		}
		return y.allLost(c, rt)
	})
}
