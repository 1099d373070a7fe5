package clover_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
)

// cutter loses all packets of one host to another, and after the first of them also those of the
// other direction.
type cutter struct {
	simnet.Node
	from, to [4]byte
	drop     bool
	lost     int
}

func (l *cutter) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	var g wire.Frame
	if l.drop && wire.ParseFrame(f.Data, &g) == nil {
		switch {
		case g.IPv4.Src == l.from && g.IPv4.Dst == l.to:
			l.lost++
			return
		case l.lost > 0 && g.IPv4.Src == l.to && g.IPv4.Dst == l.from:
			return
		}
	}
	l.Node.Frame(now, port, f, out)
}

// TestMirrorOfAnUnerasedRecord: the record of a failed INSERT was written, and cannot be erased because
// its server is unreachable. The key exists after a restart of the metadata server, and must be
// known as lost when the memory and the metadata server crash together.
func TestMirrorOfAnUnerasedRecord(t *testing.T) {
	const key = 7
	const lease = 200 * time.Millisecond
	l := &cutter{}
	g := newRigOf(t, rackYAML, simrack.Options{Datagrams: true, Wrap: atSwitch(func(n simnet.Node) simnet.Node {
		l.Node = n
		return l
	})}, meta.Config{
		Format: layout.Hardened, Keys: 4, Shares: [layout.Classes]int{1}, Lease: lease, Grace: lease, Params: rdmacm.Params{Timeout: 8, RetryCount: 1},
	}, 3<<10)
	l.from, l.to = g.Host("ms0").Addr().As4(), g.Host("md0").Addr().As4()
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		// The first key gets slot 0, whose record is on ms0.
		l.drop = true
		err := c.Insert(key, value(key, 0, 40), rt.Now().Add(150*time.Millisecond))
		if err == nil || l.lost == 0 {
			return fmt.Errorf("the INSERT ends with %w; %d packets were lost", err, l.lost)
		}
		rt.Sleep(3 * lease) // the metadata server reaches the mirror on ms1, not the record on ms0
		g.At(rt.Now(), g.Host("md0").Crash)
		rt.Sleep(time.Millisecond)
		l.drop = false
		g.At(rt.Now(), func() {
			g.Host("md0").Restart()
			g.meta()
		})
		rt.Sleep(4 * lease)
		_, err = c.Get(key, nil, soon(rt))
		if err != nil {
			return err // the record was not erased, so the key exists
		}
		for n := 1; n < 4; n++ {
			if err := c.Put(key, value(key, n, 40), soon(rt)); err != nil {
				return err
			}
		}
		if v, err := c.Get(key, nil, soon(rt)); err != nil || !bytes.Equal(v, value(key, 3, 40)) {
			return fmt.Errorf("%.20q: %w", v, err)
		}
		g.At(rt.Now(), g.Host("md0").Crash)
		g.At(rt.Now(), g.Host("ms0").Crash)
		rt.Sleep(time.Millisecond)
		g.At(rt.Now(), func() {
			g.Host("ms0").Restart()
			g.memory("ms0")
			g.Host("md0").Restart()
			g.meta()
		})
		rt.Sleep(4 * lease)
		if v, err := c.Get(key, nil, soon(rt)); !errors.Is(err, kv.ErrLost) {
			return fmt.Errorf("a key with three acknowledged PUTs whose memory was lost: %.20q, %w; want ErrLost", v, err)
		}
		return nil
	})
	g.run()
}
