package engine

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// rebuild changes a frame and computes its ICRC again.
func rebuild(t *testing.T, b []byte, change func(f *wire.Frame)) []byte {
	t.Helper()
	f := parse(t, b)
	change(&f)
	return f.AppendTo(nil)
}

// Each reason to drop a packet has its own counter, and a dropped packet has no effect.
func TestDropsAreCounted(t *testing.T) {
	header := func(change func(f *wire.Frame)) func(t *testing.T, p *pair, b []byte) []byte {
		return func(t *testing.T, _ *pair, b []byte) []byte { return rebuild(t, b, change) }
	}
	for _, c := range []struct {
		name    string
		change  func(t *testing.T, p *pair, b []byte) []byte
		counter func(c *metrics.NIC) uint64
	}{
		{"other MAC", header(func(f *wire.Frame) { f.Eth.Dst = macA }), func(c *metrics.NIC) uint64 { return c.RxNotMine }},
		{"other IP", header(func(f *wire.Frame) { f.IPv4.Dst = ipA.As4() }), func(c *metrics.NIC) uint64 { return c.RxNotMine }},
		{"VLAN", header(func(f *wire.Frame) { f.Eth.Tagged, f.Eth.TCI = true, 0x6000|666 }), func(c *metrics.NIC) uint64 { return c.RxNotMine }},
		{
			"cut off", func(_ *testing.T, _ *pair, b []byte) []byte { return b[:50] },
			func(c *metrics.NIC) uint64 { return c.RxMalformed },
		},
		{
			"one bit", func(_ *testing.T, _ *pair, b []byte) []byte { b[len(b)-6] ^= 4; return b },
			func(c *metrics.NIC) uint64 { return c.RxIcrcErr },
		},
		{"UC", header(func(f *wire.Frame) { f.BTH.Opcode = wire.UCSendOnly }), func(c *metrics.NIC) uint64 { return c.RxUnsupported }},
		{"undefined opcode", header(func(f *wire.Frame) { f.BTH.Opcode = wire.ServiceUD | 0x15 }), func(c *metrics.NIC) uint64 { return c.RxUnsupported }},
		{"version", header(func(f *wire.Frame) { f.BTH.Version = 1 }), func(c *metrics.NIC) uint64 { return c.RxUnsupported }},
		{"CNP", header(func(f *wire.Frame) { f.BTH.Opcode = wire.CNP }), func(c *metrics.NIC) uint64 { return c.RxCnpIgnored }},
		{"no such QP", header(func(f *wire.Frame) { f.BTH.DestQP ^= 1 }), func(c *metrics.NIC) uint64 { return c.RxUnknownQP }},
		{
			"QP not ready",
			func(t *testing.T, p *pair, b []byte) []byte {
				if err := p.b.qp.ToReset(); err != nil {
					t.Error(err)
				}
				return b
			}, func(c *metrics.NIC) uint64 { return c.RxUnknownQP },
		},
		{"wrong peer", header(func(f *wire.Frame) { f.IPv4.Src = [4]byte{1, 2, 3, 4} }), func(c *metrics.NIC) uint64 { return c.RxWrongPeer }},
		{"P_Key", header(func(f *wire.Frame) { f.BTH.PKey = 0x8001 }), func(c *metrics.NIC) uint64 { return c.RxPkeyErr }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, nil)
			p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte("x"), RemoteAddr: p.b.base, RKey: p.b.key})
			frame := c.change(t, p, bytes.Clone(p.a.out.Frames[0].Data))
			p.b.e.Frame(0, 0, packetio.Frame{Data: frame}, &p.b.out)
			p.b.e.EndBatch(0, &p.b.out)
			if got := c.counter(&p.b.e.counters); got != 1 {
				t.Errorf("the counter shows %d, want 1; all: %+v", got, p.b.e.counters)
			}
			other := p.b.e.counters
			if other.RxUnknownQP += other.RxUnsupported; c.name == "CNP" && other.RxUnknownQP != 0 {
				t.Errorf("it counts as another drop, too: %+v", other)
			}
			if p.b.e.counters.RcvdPkts != 0 || len(p.b.out.Frames) != 0 || p.b.buf[0] != 0 {
				t.Error("the packet had an effect")
			}
		})
	}
}

// A packet that was not encoded is dropped for the same reasons as an encoded one, and counted as the
// same.
func TestDropsOfOpenPackets(t *testing.T) {
	for name, change := range map[string]func(f *wire.Frame){
		"other MAC":     func(f *wire.Frame) { f.Eth.Dst = macA },
		"other IP":      func(f *wire.Frame) { f.IPv4.Dst = ipA.As4() },
		"UC":            func(f *wire.Frame) { f.BTH.Opcode = wire.UCSendOnly },
		"no such QP":    func(f *wire.Frame) { f.BTH.DestQP ^= 1 },
		"management QP": func(f *wire.Frame) { f.BTH.DestQP = gsiQPN },
		"group QP":      func(f *wire.Frame) { f.BTH.DestQP = 0xffffff },
		"wrong peer":    func(f *wire.Frame) { f.IPv4.Src = [4]byte{1, 2, 3, 4} },
		"P_Key":         func(f *wire.Frame) { f.BTH.PKey = 0x8001 },
	} {
		var counted [2]metrics.NIC
		for i, encoded := range []bool{true, false} {
			p := newPair(t, func(c *Config) { c.Open = true })
			p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte("x"), RemoteAddr: p.b.base, RKey: p.b.key})
			f := p.a.out.Frames[0]
			change(&f.Open.Frame)
			if encoded {
				f = packetio.Frame{Data: f.Open.Frame.AppendTo(nil)}
			}
			p.b.e.Frame(0, 0, f, &p.b.out)
			p.b.e.EndBatch(0, &p.b.out)
			counted[i] = p.b.e.counters
		}
		if counted[0] != counted[1] || counted[0].RcvdPkts != 0 {
			t.Errorf("%s: encoded %+v, open %+v", name, counted[0], counted[1])
		}
	}
}

// A packet with a reserved opcode of a reliable connection is not dropped if it comes from the
// peer: the peer gets a NAK, and the connection ends (IBTA 9.7.4.1/reserved). From another sender
// it is dropped.
func TestReservedOpcodeIsRefused(t *testing.T) {
	for _, stranger := range []bool{false, true} {
		p := newPair(t, nil)
		p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte("x"), RemoteAddr: p.b.base, RKey: p.b.key})
		frame := rebuild(t, p.a.out.Frames[0].Data, func(f *wire.Frame) {
			f.BTH.Opcode = wire.ServiceRC | 0x15
			if stranger {
				f.IPv4.Src = [4]byte{1, 2, 3, 4}
			}
		})
		p.a.out.Reset()
		p.b.e.Frame(0, 0, packetio.Frame{Data: frame}, &p.b.out)
		p.b.e.EndBatch(0, &p.b.out)
		if stranger {
			if len(p.b.out.Frames) != 0 || p.b.qp.q.State() != verbs.StateRTS {
				t.Errorf("a stranger's packet was answered with %d frames, the queue pair is in %v", len(p.b.out.Frames), p.b.qp.q.State())
			}
			continue
		}
		if len(p.b.out.Frames) != 1 || p.b.qp.q.State() != verbs.StateError {
			t.Fatalf("%d frames, the queue pair is in %v", len(p.b.out.Frames), p.b.qp.q.State())
		}
		if f := parse(t, p.b.out.Frames[0].Data); f.AETH.Syndrome != wire.NakInvalid {
			t.Errorf("answered with %v", f.AETH.Syndrome)
		}
	}
}

func TestICRCCheckCanBeOff(t *testing.T) {
	p := newPair(t, func(c *Config) { c.NoICRCCheck = true })
	p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte("x"), RemoteAddr: p.b.base, RKey: p.b.key})
	b := p.a.out.Frames[0].Data
	b[len(b)-1] ^= 1
	p.settle(t)
	if p.b.buf[0] != 'x' || p.b.e.counters.RxIcrcErr != 0 {
		t.Error("a wrong ICRC was not accepted")
	}
}

// Packets that are not RoCEv2 are left to the host's own network stack.
func TestForeignFramesAreNotCounted(t *testing.T) {
	e := newEngine(t, "b", 2, macB, nil, ipB)
	arp := append(append(append([]byte{}, macB[:]...), macA[:]...), 0x08, 0x06, 1, 2, 3)
	broadcast := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, arp[6:]...)
	var out packetio.Batch
	for _, b := range [][]byte{arp, broadcast, nil, {1}, macB[:]} {
		e.Frame(0, 0, packetio.Frame{Data: b}, &out)
	}
	c := e.counters
	if c.RxNotMine+c.RxIcrcErr+c.RxUnsupported+c.RcvdPkts != 0 || len(out.Frames) != 0 {
		t.Errorf("counted %+v", c)
	}
}

func FuzzFrame(f *testing.F) {
	p := newPair(f, nil)
	p.post(f, p.a, verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{p.a.sge(0, 100)}, RemoteAddr: p.b.base, RKey: p.b.key})
	f.Add(bytes.Clone(p.a.out.Frames[0].Data), false)
	f.Add(bytes.Clone(p.a.out.Frames[0].Data), true)
	f.Fuzz(func(t *testing.T, b []byte, repair bool) {
		p := newPair(t, func(c *Config) { c.NoICRCCheck = true })
		p.post(t, p.a, verbs.SendWR{Op: verbs.OpRead, SGL: []verbs.SGE{p.a.sge(0, 3000)}, RemoteAddr: p.b.base, RKey: p.b.key})
		var fr wire.Frame
		if repair && wire.ParseFrame(b, &fr) == nil {
			fr.Eth.Dst, fr.V6, fr.IPv4.Src, fr.IPv4.Dst = macB, false, ipA.As4(), ipB.As4()
			fr.Eth.Type, fr.BTH.DestQP, fr.BTH.PKey = wire.EtherTypeIPv4, p.b.qp.Num(), 0xffff
			b = fr.AppendTo(nil)
		}
		for range 2 {
			p.b.e.Frame(0, 0, packetio.Frame{Data: b}, &p.b.out)
		}
		p.run(t, 10*second)
	})
}

// A VLAN tag with number 0 carries a priority only: the packet is executed, and the answer has no
// tag.
func TestPriorityTag(t *testing.T) {
	p := newPair(t, nil)
	p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte("urgent"), RemoteAddr: p.b.base, RKey: p.b.key})
	b := rebuild(t, p.a.out.Frames[0].Data, func(f *wire.Frame) { f.Eth.Tagged, f.Eth.TCI = true, 0x6000 })
	p.b.e.Frame(p.now, 0, packetio.Frame{Data: b}, &p.b.out)
	p.b.e.EndBatch(p.now, &p.b.out)
	if !bytes.HasPrefix(p.b.buf, []byte("urgent")) || len(p.b.out.Frames) != 1 {
		t.Errorf("not executed, or %d answers", len(p.b.out.Frames))
	}
}

// A super-frame of more packets than any sender makes is dropped as one damaged packet.
func TestTinySegments(t *testing.T) {
	p := newPair(t, nil)
	p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte("x"), RemoteAddr: p.b.base, RKey: p.b.key})
	b := append(bytes.Clone(p.a.out.Frames[0].Data[:42]), make([]byte, 65000)...)
	binary.BigEndian.PutUint16(b[14+2:], uint16(len(b)-14))
	binary.BigEndian.PutUint16(b[34+4:], uint16(len(b)-34))
	for _, size := range []int{1, 16, 507} { // 65000 bytes are 129 packets of 507
		before := p.b.e.counters
		p.b.e.Frame(p.now, 0, packetio.Frame{Data: b, SegSize: size, CsumPartial: true}, &p.b.out)
		after := p.b.e.counters
		if n := after.RxMalformed + after.RxIcrcErr - before.RxMalformed - before.RxIcrcErr; n != 1 {
			t.Errorf("packets of %d bytes: %d dropped, want 1", size, n)
		}
	}
	f := packetio.Frame{Data: b, SegSize: 508, CsumPartial: true}
	before := p.b.e.counters
	p.b.e.Frame(p.now, 0, f, &p.b.out)
	if after := p.b.e.counters; after.RxMalformed+after.RxIcrcErr-before.RxMalformed-before.RxIcrcErr != 128 {
		t.Errorf("128 packets: %+v", after)
	}
}
