package pipeline

import (
	"bytes"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// keeper is a program that keeps the frames to a port, and emits a packet for each.
type keeper struct {
	testProgram
	// passed is a port whose frames it does not keep.
	passed int
	kept   [][]byte
	emit   bool

	queued QueuedPorts
}

func (k *keeper) Queued() *QueuedPorts { return &k.queued }

func (k *keeper) Egress(c *Ctx, port int, f packetio.Frame) bool {
	if port == k.passed {
		return false
	}
	k.kept = append(k.kept, bytes.Clone(f.Data))
	if k.emit {
		k.emit = false
		q := roceFrame(0, 2, 1, "for port 2")
		c.Emit(q, "made")
	}
	return true
}

// A program that decides about frames that leave is asked about frames of all protocols, about those
// that it emits and about those that it rewrites; it transmits what it has kept without being asked
// again.
func TestEgress(t *testing.T) {
	k := &keeper{passed: 2}
	k.packet = func(_ *Ctx, p *Parsed) Verdict {
		p.BTH.PSN = 9
		return Rewrite().With("changed")
	}
	r := newRig(t, 3, k, nil)
	for i := range 3 {
		r.send(i, plain(mac(i), broadcast))
	}
	r.Observe(true)
	k.kept, k.emit = nil, true
	k.queued.Add(1)
	k.queued.Add(2)
	before := r.Port(1).TxPackets
	r.want("another protocol", r.send(0, plain(mac(0), mac(1))), "[2]")
	if r.notes() != "out made" {
		t.Errorf("notes %q", r.notes())
	}
	r.want("rewritten", r.send(0, roce(0, 1, 7, "payload")), "[]")
	r.want("to another port", r.send(0, plain(mac(0), mac(2))), "[2]")
	r.want("to a port without queues", r.send(1, plain(mac(1), mac(0))), "[0]")
	want := roceFrame(0, 1, 9, "payload")
	if len(k.kept) != 2 || !bytes.Equal(k.kept[0], plain(mac(0), mac(1))) || !bytes.Equal(k.kept[1], want.AppendTo(nil)) {
		t.Errorf("kept %x", k.kept)
	}
	if n := r.Port(1).TxPackets; n != before {
		t.Errorf("%d kept frames count as sent", n-before)
	}
	r.out.Reset()
	sent := []bool{}
	r.Step(1, &r.out, func(c *Ctx) {
		for _, port := range []int{1, -1, 3} {
			sent = append(sent, c.Transmit(port, packetio.Frame{Data: k.kept[0]}, "at last"))
		}
	})
	clear(k.kept[0]) // Transmit has copied it
	if len(r.out.Frames) != 1 || r.out.Frames[0].Port != 1 || !bytes.Equal(r.out.Frames[0].Data, plain(mac(0), mac(1))) || !sent[0] || sent[1] || sent[2] {
		t.Errorf("sent %v: %+v", sent, r.out.Frames)
	}
	r.SetPort(1, false)
	r.Step(2, &r.out, func(c *Ctx) {
		if c.Transmit(1, packetio.Frame{Data: k.kept[1]}, "") {
			t.Error("a frame leaves through a port that is down")
		}
	})
	if _, lost := r.Counters(); lost[ReasonPortDown] != 3 {
		t.Errorf("lost %v", lost)
	}
}

// The oldest queue of a port transmits, the newest one takes new frames, also when others leave in
// any order.
func TestPlaces(t *testing.T) {
	var q QueuedPorts
	if q.Has(3) {
		t.Error("a port without queues has one")
	}
	a, b, other := q.Add(3), q.Add(3), q.Add(1)
	c := q.Add(3)
	for _, tc := range []struct {
		what           string
		p              Place
		oldest, newest bool
	}{{"first", a, true, false}, {"second", b, false, false}, {"third", c, false, true}, {"of another port", other, true, true}, {"that has left", Place{}, true, false}} {
		if tc.p.Oldest() != tc.oldest || tc.p.Newest() != tc.newest {
			t.Errorf("queue %s: oldest %v, newest %v", tc.what, tc.p.Oldest(), tc.p.Newest())
		}
	}
	b.Leave()
	a.Leave()
	a.Leave()
	if !c.Oldest() || !c.Newest() || !q.Has(3) {
		t.Error("the last queue is not the only one")
	}
	if c.Leave(); q.Has(3) || !q.Has(1) {
		t.Error("the port has a queue after all have left")
	}
}
