package packetio

import (
	"bytes"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// one makes an open packet with n bytes of payload, all of them k.
func one(s *Pages, b *Batch, k byte, n int) *Open {
	data := s.Alloc(n)
	for i := range data {
		data[i] = k
	}
	o := s.New()
	o.Frame = wire.Frame{Eth: wire.Ethernet{Dst: wire.MAC{2, 1}, Src: wire.MAC{2, 2}}, IPv4: wire.IPv4{TTL: 64}}
	o.Frame.BTH = wire.BTH{Opcode: wire.RCWriteMiddle, DestQP: wire.QPN(k)}
	o.Frame.Payload = data
	s.Add(b, o)
	return o
}

// An open packet has the length of the frame that it becomes, and becomes the frame of its fields.
func TestOpenBecomesAFrame(t *testing.T) {
	s, b := NewPages(), new(Batch)
	for n := range 9 {
		o := one(s, b, 7, n)
		f := &b.Frames[n]
		data := o.AppendTo(nil, new(wire.Sealer))
		if f.Len() != len(data) || !bytes.Equal(data, o.Frame.AppendTo(nil)) || !wire.CheckICRC(data) || f.Packets() != 1 || f.Splittable() {
			t.Errorf("%d bytes: length %d of %d", n, f.Len(), len(data))
		}
		if mtu := len(data) - minFrame; !f.Fits(mtu) || f.Fits(mtu-1) {
			t.Errorf("%d bytes: fits another MTU than %d", n, mtu)
		}
	}
	if len(b.Frames) != 9 || b.Bytes() == 0 {
		t.Errorf("%d frames, %d bytes", len(b.Frames), b.Bytes())
	}
}

// A packet becomes another one whose payload is its own or the beginning of that; other memory is refused.
func TestChange(t *testing.T) {
	s, b := NewPages(), new(Batch)
	o := one(s, b, 7, 9)
	f := o.Frame
	f.BTH.PSN = 5
	for _, k := range []struct {
		payload []byte
		changes bool
	}{{f.Payload[1:], false}, {make([]byte, 3), false}, {f.Payload, true}, {f.Payload[:4], true}, {f.Payload, false}, {nil, true}, {f.Payload[:1], false}} {
		before := o.AppendTo(nil, new(wire.Sealer))
		f.Payload = k.payload
		if got := o.Change(&f); got != k.changes {
			t.Errorf("%d bytes: %v", len(k.payload), got)
		}
		after := o.AppendTo(nil, new(wire.Sealer))
		want := before
		if k.changes {
			want = f.AppendTo(nil)
		}
		if !bytes.Equal(after, want) || o.Len() != len(want) {
			t.Errorf("%d bytes: %x of length %d, want %x", len(k.payload), after, o.Len(), want)
		}
	}
}

// Packets keep their bytes as long as they were not returned, however many others are made. Memory of
// those that were returned is used again, so that a steady state allocates nothing.
func TestPagesKeepWhatIsHeld(t *testing.T) {
	s := NewPages()
	var held []Frame
	var b Batch
	for step := range 200 {
		b.Reset()
		for range 1 + step%40 {
			one(s, &b, byte(step), 1+step*20)
		}
		s.Rest()
		if step%7 == 0 {
			held = append(held, b.Frames...)
		} else {
			ReturnAll(b.Frames)
		}
		for i := range held {
			f := &held[i].Open.Frame
			if k := byte(f.BTH.DestQP); len(f.Payload) < 1 || f.Payload[0] != k || f.Payload[len(f.Payload)-1] != k {
				t.Fatalf("step %d: a packet that is held has changed", step)
			}
		}
	}
	ReturnAll(held)
	if n := testing.AllocsPerRun(100, func() {
		b.Reset()
		for range 20 {
			one(s, &b, 1, 1000)
		}
		s.Rest()
		ReturnAll(b.Frames[:10])
		for _, f := range b.Frames[10:] {
			f.Open.Return()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if len(s.kept) > maxPages {
		t.Errorf("%d pages are kept", len(s.kept))
	}
}

// A packet that is never returned costs its memory, and nothing else: it is not used again.
func TestForgottenPackets(t *testing.T) {
	s := NewPages()
	var b Batch
	first := one(s, &b, 9, 100)
	for range 10000 {
		b.Reset()
		one(s, &b, 1, 100)
		s.Rest()
	}
	if len(s.kept) != maxPages || first.Frame.Payload[0] != 9 {
		t.Errorf("%d pages, payload %d", len(s.kept), first.Frame.Payload[0])
	}
}

// Payloads of packets that are encoded after all need no page.
func TestPayloadsWithoutPackets(t *testing.T) {
	s := NewPages()
	a := &s.Alloc(8)[0]
	s.Rest()
	if b := &s.Alloc(8)[0]; a != b {
		t.Error("the memory is not used again")
	}
	if n := len(s.Alloc(byteChunk * 2)); n != byteChunk*2 {
		t.Errorf("%d bytes", n)
	}
}

// After a burst, the memory is given back when no packet is made for a while. Packets on their way keep
// what they have.
func TestTrimOfPages(t *testing.T) {
	s := NewPages()
	var b Batch
	for range 50 {
		one(s, &b, 7, 8000)
		s.Rest()
	}
	if s.Trim() || len(s.kept) == 0 {
		t.Errorf("%d pages after a burst", len(s.kept))
	}
	if one(s, &b, 7, 8000); s.Trim() {
		t.Error("given back while packets are made")
	}
	if !s.Trim() || len(s.kept) != 0 || len(s.now.bytes) != 0 {
		t.Errorf("%d pages are kept", len(s.kept))
	}
	one(s, &b, 7, 8000)
	for i := range b.Frames {
		if f := &b.Frames[i].Open.Frame; f.Payload[0] != 7 || f.Payload[7999] != 7 {
			t.Errorf("packet %d has changed", i)
		}
	}
	ReturnAll(b.Frames)
}
