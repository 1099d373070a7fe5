package pipeline

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// hosted is what the switch of a twin has sent and counted.
type hosted struct {
	sent   []string
	counts string
}

// twin passes one packet, and later the Tick at time 100, to a switch with three hosts: encoded or open.
// It returns what left, how many packets of this left open, and whether the open packet was returned.
func twin(t *testing.T, p *keeper, prepare func(*rig), to int, open bool) (got hosted, left int, returned bool) {
	r := newRig(t, 3, p, func(c *Config) {
		c.Self = Self{MAC: mac(9), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, 9})}}
	})
	for i := range 3 {
		r.send(i, plain(mac(i), broadcast))
	}
	if prepare != nil {
		prepare(r)
	}
	f := roceFrame(0, to, 7, "a payload")
	frame, pages := packetio.Frame{Data: f.AppendTo(nil)}, packetio.NewPages()
	first := pages.New()
	if open {
		var b packetio.Batch
		first.Frame = *f
		first.Frame.Payload = append(pages.Alloc(len(f.Payload))[:0], f.Payload...)
		pages.Add(&b, first)
		frame = b.Frames[0]
		if to, ok := r.Open(r.now, 0, &frame, nil); to >= 0 || !ok {
			t.Fatal("the packet is not taken as it is")
		}
	}
	show := func() {
		for _, f := range r.out.Frames {
			b := f.Data
			if f.Open != nil {
				left++
				b = f.Open.AppendTo(nil, new(wire.Sealer))
			}
			got.sent = append(got.sent, fmt.Sprintf("%d to %d: %x, %d bytes", f.Origin, f.Port, b, f.Len()))
		}
		packetio.ReturnAll(r.out.Frames)
	}
	r.sendFrame(0, frame)
	show()
	r.now = 100
	r.tick()
	show()
	counters, lost := r.Counters()
	got.counts = fmt.Sprintf("%+v %v %+v %x", counters, lost, r.Flows(), p.kept)
	for i := range 3 {
		got.counts += fmt.Sprintf("\n%+v", r.Port(i))
	}
	pages.Rest()
	return got, left, pages.New() == first
}

// A packet that is not encoded has the same fate as an encoded one, whatever the program does with it,
// and where it leaves open it is the same packet. None is lost without being returned.
func TestOpenPackets(t *testing.T) {
	decide := func(v Verdict) func(*Ctx, *Parsed) Verdict { return func(*Ctx, *Parsed) Verdict { return v } }
	for name, k := range map[string]struct {
		packet  func(*Ctx, *Parsed) Verdict
		prepare func(*rig)
		to      int
		left    int // packets that leave open
	}{
		"forwarded":              {packet: decide(Forward()), to: 1, left: 1},
		"dropped":                {packet: decide(Drop("no reason")), to: 1},
		"consumed":               {packet: decide(Consume()), to: 1},
		"apart":                  {packet: decide(Apart()), to: 1, left: 1},
		"unknown address":        {packet: decide(Forward()), to: 5},
		"its own port":           {packet: decide(Forward()), to: 0},
		"to the switch":          {packet: decide(Forward()), to: 9},
		"port down":              {packet: decide(Forward()), prepare: func(r *rig) { r.ports[1].up = false }, to: 1},
		"partition":              {packet: decide(Forward()), prepare: func(r *rig) { r.Partition([]int{0, 1}) }, to: 1},
		"kept as it leaves":      {packet: decide(Forward()), prepare: func(r *rig) { r.program.queued.Add(1) }, to: 1},
		"asked about as it goes": {packet: decide(Forward()), prepare: func(r *rig) { r.program.queued.Add(2) }, to: 2},
		"new headers": {packet: func(_ *Ctx, p *Parsed) Verdict {
			p.BTH.PSN, p.Eth.Dst, p.IPv4.Dst[3] = 9, mac(2), 2
			return Rewrite()
		}, to: 1, left: 1},
		"without payload": {packet: func(_ *Ctx, p *Parsed) Verdict {
			p.BTH.Opcode, p.Payload = wire.RCAck, nil
			return Rewrite()
		}, to: 1, left: 1},
		"shorter payload": {packet: func(_ *Ctx, p *Parsed) Verdict {
			p.Payload = p.Payload[:3]
			return Rewrite()
		}, to: 1, left: 1},
		"other payload": {packet: func(_ *Ctx, p *Parsed) Verdict {
			p.Payload = []byte("not this")
			return Rewrite()
		}, to: 1},
		"end of the payload": {packet: func(_ *Ctx, p *Parsed) Verdict {
			p.Payload = p.Payload[3:]
			return Rewrite()
		}, to: 1},
		"too long": {packet: func(_ *Ctx, p *Parsed) Verdict {
			p.Payload = make([]byte, maxHeldFrame)
			return Rewrite()
		}, to: 1},
		"held": {packet: func(c *Ctx, p *Parsed) Verdict { return c.Hold(p, 50) }, to: 1},
		"replaced": {packet: func(c *Ctx, p *Parsed) Verdict {
			p.BTH.PSN = 5
			c.Emit(&p.Frame, "")
			return Consume()
		}, to: 1, left: 1},
		"emitted, too": {packet: func(c *Ctx, p *Parsed) Verdict {
			p.BTH.PSN = 5
			c.Emit(&p.Frame, "")
			return Forward()
		}, to: 1, left: 2},
		"emitted with another payload": {packet: func(c *Ctx, p *Parsed) Verdict {
			made := p.Frame
			made.Payload = []byte("bytes of the program")
			ok := c.Emit(&made, "")
			clear(made.Payload)
			p.BTH.AckReq = ok
			return Rewrite()
		}, to: 1, left: 2},
		"a datagram of the connection manager": {packet: func(c *Ctx, p *Parsed) Verdict {
			p.BTH.Opcode, p.BTH.DestQP = wire.UDSendOnly, 1
			c.Emit(&p.Frame, "")
			return Consume()
		}, to: 1},
		"a notification of congestion": {packet: func(c *Ctx, p *Parsed) Verdict {
			p.BTH.Opcode, p.Payload = wire.CNP, nil
			c.Emit(&p.Frame, "")
			return Consume()
		}, to: 1},
		"emitted to an unknown address": {packet: func(c *Ctx, p *Parsed) Verdict {
			p.Eth.Dst = mac(5)
			c.Emit(&p.Frame, "")
			return Consume()
		}, to: 1},
		"emitted to a port that keeps": {packet: func(c *Ctx, p *Parsed) Verdict {
			c.Emit(&p.Frame, "")
			return Consume()
		}, prepare: func(r *rig) { r.program.queued.Add(1) }, to: 1},
	} {
		run := func(open bool) (hosted, int, bool) {
			return twin(t, &keeper{testProgram: testProgram{packet: k.packet}, passed: 2}, k.prepare, k.to, open)
		}
		want, _, _ := run(false)
		got, left, returned := run(true)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s:\n%v\nwant\n%v", name, got, want)
		}
		if left != k.left {
			t.Errorf("%s: %d packets left open, want %d", name, left, k.left)
		}
		if !returned {
			t.Errorf("%s: the packet was not returned", name)
		}
	}
}

// The memory of packets that a program makes is used again, also of those that the switch drops, and
// it is given back when no more are made.
func TestMadePacketsAreReturned(t *testing.T) {
	for name, up := range map[string]bool{"sent": true, "dropped": false} {
		r, _ := withProgram(t, func(c *Ctx, p *Parsed) Verdict {
			if ok := c.Emit(&p.Frame, ""); ok != up {
				t.Fatalf("%s: emitted: %v", name, ok)
			}
			return Consume()
		})
		r.send(1, plain(mac(1), broadcast))
		r.Observe(false)
		r.ports[1].up = up
		pages := packetio.NewPages()
		var b packetio.Batch
		step := func() {
			b.Reset()
			pages.Rest()
			o := pages.New()
			o.Frame = *roceOfTest
			pages.Add(&b, o)
			r.out.Reset()
			r.Frame(r.now, 0, b.Frames[0], &r.out)
			packetio.ReturnAll(r.out.Frames)
		}
		// A page has memory for many packets, so that a few allocations would be many packets.
		allocs := testing.AllocsPerRun(1, func() {
			for range 6400 {
				step()
			}
		})
		if allocs > 10 {
			t.Errorf("%s: %v allocations for 6400 packets", name, allocs)
		}
		for range 2 {
			if r.now = r.Deadline(); r.now == clock.Never {
				t.Fatalf("%s: no timer for the memory", name)
			}
			r.tick()
		}
		if at := r.Deadline(); at != clock.Never {
			t.Errorf("%s: another timer at %v", name, at)
		}
	}
}

// roceOfTest is a packet from host 0 to host 1.
var roceOfTest = roceFrame(0, 1, 7, "")

// The program sees the same packet, and its bytes.
func TestOpenPacketAsParsed(t *testing.T) {
	f := roceFrame(0, 1, 7, "a payload")
	data := f.AppendTo(nil)
	calls := 0
	r, _ := withProgram(t, func(_ *Ctx, p *Parsed) Verdict {
		calls++
		if !bytes.Equal(p.Bytes(), data) || !bytes.Equal(p.Frame.AppendTo(nil), data) || !p.Intact() || p.Packets != 1 || p.Own || p.Ingress != 0 {
			t.Errorf("%x, %+v", p.Bytes(), p)
		}
		return Forward()
	})
	var b packetio.Batch
	pages := packetio.NewPages()
	o := pages.New()
	o.Frame = *f
	pages.Add(&b, o)
	r.sendFrame(0, b.Frames[0])
	r.sendFrame(0, packetio.Frame{Data: data})
	if calls != 2 {
		t.Errorf("%d calls", calls)
	}
}

// What looks at bytes before the program does not get a packet that is not encoded.
func TestTakesOpen(t *testing.T) {
	k := &taker{}
	k.marks.Add(2)
	r := newRig(t, 3, k, func(c *Config) {
		c.Self = Self{MAC: mac(9), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, 9})}}
	})
	for name, c := range map[string]struct {
		in, src, dst int
		change       func(f *wire.Frame)
		takes        bool
	}{
		"a packet":              {0, 0, 1, nil, true},
		"to the switch":         {0, 0, 9, nil, true},
		"no port":               {3, 0, 1, nil, false},
		"taken port":            {2, 2, 1, nil, false},
		"address of the switch": {0, 9, 1, func(f *wire.Frame) { f.Eth.Src = mac(0) }, false},
		"forged":                {0, 0, 1, func(f *wire.Frame) { f.Eth.Src = mac(9) }, false},
		"from a group":          {0, 0, 1, func(f *wire.Frame) { f.Eth.Src = broadcast }, false},
		"to a group":            {0, 0, 1, func(f *wire.Frame) { f.Eth.Dst = broadcast }, false},
	} {
		f := roceFrame(c.src, c.dst, 1, "")
		if c.change != nil {
			c.change(f)
		}
		frame := packetio.Frame{Open: &packetio.Open{Frame: *f}}
		if to, got := r.Open(0, c.in, &frame, nil); to != -1 || got != c.takes {
			t.Errorf("%s: %d, %v", name, to, got)
		}
		r.Observe(true)
		if _, takes := r.Open(0, c.in, &frame, nil); takes {
			t.Errorf("%s: taken while a capture runs", name)
		}
		r.Observe(false)
	}
	if len(r.MACs()) != 0 {
		t.Error("a question has changed the switch")
	}
}
