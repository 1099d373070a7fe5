package clover_test

import (
	"bytes"
	"encoding/binary"
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

// wrap is a switch that loses an append of a host, and cuts the host off from the memory servers
// until the entry to which it would have appended is a node of the same version again, in a later
// epoch, and the newest node of another key.
type wrap struct {
	simnet.Node
	port    int // of the host
	lose    bool
	cut     bool
	va      uint64
	rkey    uint32
	version layout.Version
	written bool // the entry holds a node of that version again
}

func (w *wrap) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	var g wire.Frame
	if wire.ParseFrame(f.Data, &g) != nil {
		w.Node.Frame(now, port, f, out)
		return
	}
	switch {
	case port == w.port && g.BTH.Opcode == wire.RCCmpSwap && w.lose:
		w.lose, w.cut = false, true
		w.va, w.rkey, w.version = g.AtomicETH.VA, g.AtomicETH.RKey, layout.Word(g.AtomicETH.Compare).EntryVersion()
	case port != w.port && w.cut && g.BTH.Opcode == wire.RCWriteOnly && g.RETH.VA == w.va && g.RETH.RKey == w.rkey && len(g.Payload) >= 8:
		w.written = w.written || layout.Word(binary.LittleEndian.Uint64(g.Payload)).EntryVersion() == w.version
	}
	if w.cut && port == w.port && g.BTH.Opcode != wire.RCSendOnly && g.BTH.Opcode != wire.RCAck {
		return
	}
	w.Node.Frame(now, port, f, out)
}

// A client's append is lost, and the client is cut off from memory while the metadata server
// announces epoch after epoch to it. It does not confirm them, because the append may be in flight,
// and is expelled after lease and grace. The node to which it would have appended then uses up all
// its versions, and belongs to another key when the client looks there again.
func TestAppendToANodeOfAnotherEpoch(t *testing.T) {
	w := &wrap{port: 3}
	g := newRigOf(t, rackYAML, simrack.Options{Datagrams: true, Wrap: atSwitch(func(n simnet.Node) simnet.Node {
		w.Node = n
		return w
	})}, meta.Config{Format: layout.Hardened, Keys: 4, Shares: [layout.Classes]int{1}, Lease: time.Second, Grace: time.Second}, 2<<10)
	const key, other, size = 1, 2, 40
	ready, done, expelled := false, false, false
	params := rdmacm.Params{Timeout: 8, RetryCount: 1}
	open := func(host string, f func(c *clover.Client, rt verbs.Runtime) error) {
		h := g.Host(host)
		h.Go("client", false, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			c, err := clover.Open(clover.Config{
				Context: ctx, Manager: h.Manager(ctx), Meta: g.Host("md0").Addr(), Params: params, Batch: 1, Records: 1,
			}, soon(rt))
			if err == nil {
				err = errors.Join(f(c, rt), c.Close())
			}
			if err != nil {
				t.Errorf("%s: %v", host, err)
			}
		})
	}
	late := func(rt verbs.Runtime) clock.Time { return rt.Now().Add(5 * time.Minute) }
	mine := value(key, 100, size)
	open("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		if err := errors.Join(c.Insert(key, value(key, 0, size), soon(rt)), c.Put(key, value(key, 1, size), soon(rt))); err != nil {
			return err
		}
		ready, w.lose = true, true
		err := c.Put(key, mine, late(rt))
		if expelled = errors.Is(err, kv.ErrTimeout); expelled {
			err = nil
		}
		done = true
		return err
	})
	open("cn1", func(c *clover.Client, rt verbs.Runtime) error {
		for ; !w.cut || !ready; rt.Sleep(time.Millisecond) {
		}
		if err := c.Put(key, value(key, 50, size), soon(rt)); err != nil {
			return err
		}
		last := value(other, 0, size)
		if err := c.Insert(other, last, soon(rt)); err != nil {
			return err
		}
		for n := 1; !w.written; n++ {
			last = value(other, n, size)
			if err := c.Put(other, last, late(rt)); err != nil {
				return fmt.Errorf("PUT %d: %w", n, err)
			}
		}
		w.cut = false
		for ; !done; rt.Sleep(time.Millisecond) {
		}
		if expelled {
			mine = value(key, 50, size)
		}
		for k, want := range map[uint64][]byte{key: mine, other: last} {
			if v, err := c.Get(k, nil, rt.Now().Add(time.Second)); err != nil || !bytes.Equal(v, want) {
				t.Errorf("key %d is %.20q, want %.20q: %v", k, v, want, err)
			}
		}
		return nil
	})
	g.run()
}
