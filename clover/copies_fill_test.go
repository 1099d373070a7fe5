package clover_test

import (
	"errors"
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
	"github.com/rdmalab/rdmalab/store/kv"
)

// breaking is a link between the metadata server and one memory server on which each connection fails
// after some packets with data.
type breaking struct {
	filter
	left int        // packets with data until the next failure
	back clock.Time // end of the present failure
	// failures counts the failures; failed, if set, is called at each of them.
	failures int
	failed   func(now clock.Time)
}

const (
	breakAfter = 6 // packets with data; those of a segment of 8 KiB are 8
	breakLasts = 10 * time.Millisecond
)

// between makes the connections between two hosts fail from now on.
func (b *breaking) between(md, ms netip.Addr) {
	b.left = breakAfter
	b.drop = func(now clock.Time, f *wire.Frame) bool {
		src, dst := netip.AddrFrom4(f.IPv4.Src), netip.AddrFrom4(f.IPv4.Dst)
		if src != md && src != ms || dst != md && dst != ms {
			return false
		}
		if now < b.back {
			return true
		}
		if len(f.Payload) > layout.SuperblockLen && f.BTH.Opcode&0xe0 == 0 { // of a reliable connection
			if b.left--; b.left == 0 {
				b.left, b.back = breakAfter, now.Add(breakLasts)
				if b.failures++; b.failed != nil {
					b.failed(now)
				}
			}
		}
		return now < b.back
	}
}

func newBreakingRig(t *testing.T) (*copyStory, *breaking) {
	b := &breaking{}
	cfg := meta.Config{
		Format: layout.Hardened, Keys: 64, Replicas: 2, Lease: 400 * time.Millisecond, Grace: 400 * time.Millisecond,
		Params: rdmacm.Params{PathMTU: verbs.MTU1024, Timeout: 7, RetryCount: 1},
	}
	return &copyStory{newRigOf(t, threeServers, b.options(), cfg, region), map[uint64][]byte{}}, b
}

// A server is filled although each connection to it fails before a piece of the usual length has
// passed. Without shorter pieces and new connections, the filling would begin again and again.
func TestAServerIsFilledOverConnectionsThatFail(t *testing.T) {
	y, b := newBreakingRig(t)
	y.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		if err := y.write(c, rt, 1); err != nil {
			return err
		}
		y.crash("ms1", rt)
		b.between(y.Host("md0").Addr(), y.Host("ms1").Addr())
		y.Host("ms1").Restart()
		y.memory("ms1")
		for began := rt.Now(); y.server.Snapshot().Away > 0; rt.Sleep(time.Millisecond) {
			if rt.Now() > began.Add(20*time.Second) {
				return fmt.Errorf("ms1 is not filled after %d failures of its connections", b.failures)
			}
		}
		if b.failures < 3 {
			t.Errorf("%d failures of connections: the test proves nothing", b.failures)
		}
		b.drop = nil
		y.crash("ms0", rt)
		lost, err := y.read(c, rt)
		if lost > 0 {
			t.Errorf("%d keys lost", lost)
		}
		return err
	})
	y.run()
}

// A server crashes while it is filled, and is back when the metadata server connects to it again. The
// filling begins again: its new memory has nothing of what was written before.
func TestAFillingDoesNotGoOnInOtherMemory(t *testing.T) {
	y, b := newBreakingRig(t)
	y.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		if err := y.write(c, rt, 1); err != nil {
			return err
		}
		y.crash("ms1", rt)
		b.between(y.Host("md0").Addr(), y.Host("ms1").Addr())
		b.failed = func(now clock.Time) {
			if b.failures == 3 {
				y.At(now, func() {
					y.Host("ms1").Crash()
					y.Host("ms1").Restart()
					y.memory("ms1")
				})
			}
		}
		y.Host("ms1").Restart()
		y.memory("ms1")
		for end := rt.Now().Add(20 * time.Second); y.server.Snapshot().Away > 0; rt.Sleep(time.Millisecond) {
			if rt.Now() > end {
				return fmt.Errorf("ms1 is not filled after %d failures of its connections", b.failures)
			}
		}
		if b.failures < 4 {
			t.Errorf("%d failures of connections: the test proves nothing", b.failures)
		}
		b.drop = nil
		y.crash("ms0", rt)
		for key := range y.want {
			if _, err := c.Get(key, nil, soon(rt)); errors.Is(err, kv.ErrLost) {
				t.Errorf("key %d is lost", key)
			}
		}
		_, err := y.read(c, rt)
		return err
	})
	y.run()
}

// A memory server crashes while the metadata server writes to it in a store without copies, and is
// back at once. The metadata server does not take its new memory for the store's: keys with nodes
// there are lost.
func TestAWriteDoesNotEndInOtherMemory(t *testing.T) {
	x := &filter{}
	g := newRigOf(t, rackYAML, x.options(), meta.Config{
		Format: layout.Hardened, Keys: 64, Params: rdmacm.Params{Timeout: 7, RetryCount: 1},
	}, region)
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		key := uint64(1)
		for ; key == 1 || c.Placed() != 0; key++ {
			if err := c.Insert(key, value(key, 1, 40), soon(rt)); err != nil {
				return err
			}
		}
		md, ms := g.Host("md0").Addr(), g.Host("ms0").Addr()
		crashed := false
		x.drop = func(now clock.Time, f *wire.Frame) bool {
			// the class of a segment is one byte
			if crashed || f.BTH.Opcode != wire.RCWriteOnly || f.RETH.Length != 1 || netip.AddrFrom4(f.IPv4.Src) != md || netip.AddrFrom4(f.IPv4.Dst) != ms {
				return false
			}
			crashed = true
			g.At(now, func() {
				g.Host("ms0").Crash()
				g.Host("ms0").Restart()
				g.memory("ms0")
			})
			return true
		}
		if err := c.Insert(key, value(key, 1, 1000), soon(rt)); err != nil && !errors.Is(err, kv.ErrTimeout) {
			return err
		}
		if v, err := c.Get(key-1, nil, soon(rt)); !crashed || !errors.Is(err, kv.ErrLost) {
			return fmt.Errorf("ms0 has crashed: %v; its key is %.10q, %w", crashed, v, err)
		}
		if st := g.server.Snapshot(); st.Losses != 1 || st.Broken > 0 {
			return fmt.Errorf("%d memories lost, %d chains broken", st.Losses, st.Broken)
		}
		return nil
	})
	g.run()
}
