package clover

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// newEpoch is a switch that loses an append of a client, and has the metadata server begin an epoch
// while the client looks for the outcome of the append.
type newEpoch struct {
	simnet.Node
	y    *epochStory
	port int // of the client
	// losing is set while appends are lost; begun is set when the metadata server has announced a
	// new epoch.
	losing, begun bool
	// confirmed is set when the client has confirmed the epoch. asked is set when it has requested
	// the location of the key since the epoch began.
	confirmed, asked bool
	late, appends    int
}

const epochOff = 8 // of an answer's epoch

func (b *newEpoch) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	var g wire.Frame
	if wire.ParseFrame(f.Data, &g) != nil {
		b.Node.Frame(now, port, f, out)
		return
	}
	switch op := g.BTH.Opcode; {
	case port == b.port && op == wire.RCCmpSwap && b.losing:
		b.delay(now, wire.RCWriteOnly)
		return
	case port == b.port && op == wire.RCCmpSwap:
		if b.appends++; b.confirmed && !b.asked {
			b.late++
		}
	case port == b.port && op == wire.RCWriteOnly && g.RETH.Length == 0 && b.losing: // package clover's fence
		b.losing, b.begun = false, true
		b.delay(now, wire.RCReadRequest)
	case port == b.port && op == wire.RCSendOnly:
		var r rpc.Request
		if r.Parse(g.Payload) == nil {
			b.confirmed = b.confirmed || r.Epoch > 1
			b.asked = b.asked || b.begun && r.Op == rpc.OpQuery
		}
	case port != b.port && b.begun && op == wire.RCWriteOnlyImm && len(g.Payload) > epochOff+4:
		data := append([]byte(nil), g.Payload...)
		binary.LittleEndian.PutUint32(data[epochOff:], 2)
		g.Payload = data
		f.Data = g.AppendTo(nil)
	}
	b.Node.Frame(now, port, f, out)
}

// delay makes the client's requests of a kind take more than half of a lease.
func (b *newEpoch) delay(now clock.Time, op wire.Opcode) {
	b.y.rack.At(now, func() {
		b.y.rack.Host("cn0").SetFaults([]fault.Rule{{
			Link: "cn0", Kind: fault.Delay, Delay: 210 * time.Millisecond, Match: fault.Match{Opcodes: []wire.Opcode{op}},
		}})
	})
}

// A client looks for the outcome of an append that was lost, on a memory server so slow that the
// client renews its lease before the header is read and before the append is repeated: the first
// answer begins an epoch, and the second request confirms it. From then on the entry that the
// append names may hold another node.
func TestNothingIsPostedAfterItsEpoch(t *testing.T) {
	b := &newEpoch{port: 2}
	y := newEpochStoryOn(t, func(n simnet.Node) simnet.Node {
		b.Node = n
		return b
	})
	b.y, y.lease = y, 400*time.Millisecond
	y.params.Timeout, y.params.RetryCount = 15, 1
	y.client("cn0", 16, func(c *Client, rt verbs.Runtime) error {
		if err := c.Insert(wornKey, padded("first"), inTwoMinutes(rt)); err != nil {
			return err
		}
		b.losing = true
		if err := c.Put(wornKey, padded("second"), inTwoMinutes(rt)); err != nil {
			return err
		}
		y.rack.Host("cn0").SetFaults(nil)
		y.read(c, rt, "after the PUT", "second")
		return nil
	})
	if err := y.rack.Run(); err != nil {
		t.Fatal(err)
	}
	if b.late > 0 || b.appends == 0 || !b.confirmed || !b.asked {
		t.Errorf("%d of %d appends name a location of an epoch that had ended; the next one was confirmed: %v, and used: %v",
			b.late, b.appends, b.confirmed, b.asked)
	}
}

// The append of a node is lost, and meanwhile its key is deleted. The PUT fails, but the append may
// still arrive at a server. Its node must not be used for another value.
func TestNodeOfAnOpenAppendIsNotUsedAgain(t *testing.T) {
	box := &casLoser{port: 3}
	y := newEpochStoryOn(t, func(n simnet.Node) simnet.Node {
		box.Node = n
		return box
	})
	y.params.Timeout, y.params.RetryCount, y.lease = 8, 1, 10*time.Second
	y.client("cn0", 16, func(c *Client, rt verbs.Runtime) error {
		if err := c.Insert(wornKey, padded("first"), inTwoMinutes(rt)); err != nil {
			return err
		}
		y.stage = 1
		for box.dropped == 0 {
			rt.Sleep(10 * time.Microsecond)
		}
		return c.Delete(wornKey, inTwoMinutes(rt))
	})
	y.client("cn1", 16, func(c *Client, rt verbs.Runtime) error {
		y.wait(rt, 1)
		y.read(c, rt, "before", "first")
		l, err := c.appender.take(0, wornKey, false, inTwoMinutes(rt))
		if err != nil {
			return err
		}
		c.session.spare[0] = append(c.session.spare[0], l)
		box.drop = true
		if err := c.Put(wornKey, padded("second"), inTwoMinutes(rt)); err == nil {
			t.Error("the PUT of a deleted key succeeded")
		}
		if slices.Contains(c.session.spare[0], l) {
			t.Errorf("%v is to be reused, and its append may arrive", l)
		}
		return nil
	})
	if err := y.rack.Run(); err != nil {
		t.Fatal(err)
	}
}
