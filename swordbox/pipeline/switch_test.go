package pipeline

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// testProgram is a program whose methods are set by the test.
type testProgram struct {
	spec     Spec
	packet   func(*Ctx, *Parsed) Verdict
	tick     func(*Ctx)
	deadline clock.Time
}

func (t *testProgram) Spec() Spec { return t.spec }

func (t *testProgram) Packet(c *Ctx, p *Parsed) Verdict {
	if t.packet == nil {
		return Forward()
	}
	return t.packet(c, p)
}

func (t *testProgram) Tick(c *Ctx) { t.tick(c) }

func (t *testProgram) Deadline() clock.Time {
	if t.tick == nil {
		return clock.Never
	}
	return t.deadline
}

// mac returns the address of the host at port i.
func mac(i int) wire.MAC { return wire.MAC{2, 0, 0, 0, 0, byte(i)} }

var broadcast = wire.MAC{255, 255, 255, 255, 255, 255}

// roceFrame is a RoCEv2 packet from host src to host dst.
func roceFrame(src, dst int, psn wire.PSN, payload string) *wire.Frame {
	f := &wire.Frame{Eth: wire.Ethernet{Dst: mac(dst), Src: mac(src)}}
	f.IPv4 = wire.IPv4{TTL: 64, DF: true, Src: [4]byte{10, 0, 0, byte(src)}, Dst: [4]byte{10, 0, 0, byte(dst)}}
	f.UDP.SrcPort = 0xc000
	f.BTH = wire.BTH{Opcode: wire.RCSendOnly, PKey: 0xffff, DestQP: 0x11, PSN: psn}
	f.Payload = []byte(payload)
	return f
}

func roce(src, dst int, psn wire.PSN, payload string) []byte {
	return roceFrame(src, dst, psn, payload).AppendTo(nil)
}

// plain returns a frame that is not IP.
func plain(src, dst wire.MAC) []byte {
	b := append(append(append([]byte{}, dst[:]...), src[:]...), 0x88, 0xb5)
	return append(b, make([]byte, 46)...)
}

// rig is a switch and the frames that it sent.
type rig struct {
	*Switch
	t   testing.TB
	now clock.Time
	out packetio.Batch
}

func newRig(t testing.TB, ports int, p Program, change func(*Config)) *rig {
	t.Helper()
	cfg := Config{Ports: ports, Program: p}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{Switch: s, t: t}
}

// send passes a frame to the switch and returns the ports that it was sent out of, as text.
func (r *rig) send(in int, data []byte) string {
	return r.sendFrame(in, packetio.Frame{Data: data})
}

func (r *rig) sendFrame(in int, f packetio.Frame) string {
	r.out.Reset()
	r.Frame(r.now, in, f, &r.out)
	return r.left()
}

func (r *rig) tick() string {
	r.out.Reset()
	r.Tick(r.now, &r.out)
	return r.left()
}

func (r *rig) left() string {
	var ports []int
	for _, f := range r.out.Frames {
		ports = append(ports, f.Port)
	}
	return fmt.Sprint(ports)
}

func (r *rig) want(what, got, want string) {
	r.t.Helper()
	if got != want {
		r.t.Errorf("%s: left at %s, want %s", what, got, want)
	}
}

func TestLearning(t *testing.T) {
	r := newRig(t, 4, &testProgram{}, nil)
	r.want("unknown", r.send(0, plain(mac(0), mac(1))), "[1 2 3]")
	r.want("answer", r.send(1, plain(mac(1), mac(0))), "[0]")
	r.want("known", r.send(0, plain(mac(0), mac(1))), "[1]")
	r.want("broadcast", r.send(0, plain(mac(0), broadcast)), "[1 2 3]")
	r.want("multicast", r.send(0, plain(mac(0), wire.MAC{0x33, 0x33, 0, 0, 0, 1})), "[1 2 3]")
	r.want("same port", r.send(1, plain(mac(9), mac(1))), "[]")
	r.want("to itself behind another port", r.send(3, plain(mac(1), mac(0))), "[0]")
	r.want("moved", r.send(0, plain(mac(0), mac(1))), "[3]")
	r.now = clock.Time(6 * time.Minute)
	r.want("aged", r.send(0, plain(mac(0), mac(1))), "[1 2 3]")
	if c, _ := r.Counters(); c.MACMoves != 1 || c.Flooded != 4 {
		t.Errorf("counters %+v", c)
	}
}

func TestDropsOfLayer2(t *testing.T) {
	r := newRig(t, 3, &testProgram{}, nil)
	r.want("runt", r.send(0, make([]byte, 13)), "[]")
	r.want("group source", r.send(0, plain(broadcast, mac(1))), "[]")
	r.want("reserved", r.send(0, plain(mac(0), wire.MAC{1, 0x80, 0xc2, 0, 0, 0xe})), "[]")
	r.want("no such port", r.send(7, plain(mac(0), mac(1))), "[]")
	r.send(1, plain(mac(1), broadcast))
	r.SetPort(1, false)
	r.want("port down, forgotten", r.send(0, plain(mac(0), mac(1))), "[2]")
	r.SetPort(2, false)
	r.want("no host left", r.send(0, plain(mac(0), mac(1))), "[]")
	got := r.Port(0).Drops
	for _, reason := range []Reason{ReasonRunt, ReasonBadSource, ReasonReserved, ReasonPortDown} {
		if got[reason] != 1 {
			t.Errorf("%s: %d drops, want 1 (%v)", reason, got[reason], got)
		}
	}
}

func TestPartition(t *testing.T) {
	r := newRig(t, 4, &testProgram{}, nil)
	for i := range 4 {
		r.send(i, plain(mac(i), broadcast))
	}
	r.Partition([]int{0, 0, 1, 1})
	r.want("inside", r.send(0, plain(mac(0), mac(1))), "[1]")
	r.want("across", r.send(0, plain(mac(0), mac(2))), "[]")
	r.want("broadcast", r.send(2, plain(mac(2), broadcast)), "[3]")
	if n := r.Port(0).Drops[ReasonPartition]; n != 1 {
		t.Errorf("%d drops", n)
	}
	r.Partition([]int{0, -1, 1})
	r.want("in no group", r.send(1, plain(mac(1), broadcast)), "[0 2 3]")
	r.want("apart", r.send(0, plain(mac(0), broadcast)), "[1 3]")
	r.Partition(nil)
	r.want("healed", r.send(0, plain(mac(0), mac(2))), "[2]")
}

func TestTablesAreBounded(t *testing.T) {
	r := newRig(t, 2, &testProgram{}, func(c *Config) { c.MaxMACs, c.MaxFlows = 8, 8 })
	for i := range 100 {
		f := roceFrame(0, 1, 0, "x")
		f.Eth.Src = mac(i)
		f.BTH.DestQP = wire.QPN(i)
		r.send(0, f.AppendTo(nil))
	}
	c, _ := r.Counters()
	if c.MACs != 8 || c.MACFull != 92 || c.Flows != 8 || c.FlowOverflow != 92 {
		t.Errorf("counters %+v", c)
	}
	r.now = clock.Time(time.Hour)
	f := roceFrame(50, 1, 0, "x")
	f.BTH.DestQP = 50
	r.send(0, f.AppendTo(nil))
	if c, _ := r.Counters(); c.MACs != 1 || c.Flows != 1 {
		t.Errorf("after an hour: %+v", c)
	}
}

// Forwarding sends exactly the received bytes, also of malformed packets, and counts them.
func TestForwardTouchesNothing(t *testing.T) {
	r := newRig(t, 2, &testProgram{}, nil)
	good := roce(0, 1, 1, "hello")
	badICRC := slices.Clone(good)
	badICRC[len(badICRC)-1] ^= 1
	short := slices.Clone(good[:50])
	binary.BigEndian.PutUint16(short[16:], 36)
	for _, b := range [][]byte{good, badICRC, short, good[:43]} {
		before := slices.Clone(b)
		r.want("forward", r.send(0, b), "[1]")
		if got := r.out.Frames[0].Data; &got[0] != &b[0] || !bytes.Equal(got, before) {
			t.Errorf("%d bytes were copied or changed", len(b))
		}
	}
	if c := r.Port(0); c.RxPackets != 4 || c.RxRoCE != 2 || c.Malformed != 2 {
		t.Errorf("port %+v", c)
	}
	flows := r.Flows()
	if len(flows) != 1 || flows[0].Packets != 2 || flows[0].QPN != 0x11 || flows[0].Src.String() != "10.0.0.0" {
		t.Errorf("flows %+v", flows)
	}
}

// super joins equal packets into one frame, as segmentation offload does.
func super(packets ...[]byte) packetio.Frame {
	const headers = 14 + 20 + 8
	b := slices.Clone(packets[0])
	for _, p := range packets[1:] {
		b = append(b, p[headers:]...)
	}
	binary.BigEndian.PutUint16(b[16:], uint16(len(b)-14))
	binary.BigEndian.PutUint16(b[38:], uint16(len(b)-34))
	return packetio.Frame{Data: b, SegSize: len(packets[0]) - headers, CsumPartial: true, CsumStart: 34, CsumOffset: 6}
}

func superOf(n int) (packetio.Frame, [][]byte) {
	var list [][]byte
	for i := range n {
		f := roceFrame(0, 1, wire.PSN(i), "same size")
		f.IPv4.ID = uint16(100 + i)
		list = append(list, f.AppendTo(nil))
	}
	return super(list...), list
}

func TestSuperFrames(t *testing.T) {
	f, packets := superOf(3)
	r := newRig(t, 2, &testProgram{}, nil)
	r.want("whole", r.sendFrame(0, f), "[1]")
	got := r.out.Frames[0]
	if got.SegSize != f.SegSize || !got.CsumPartial || &got.Data[0] != &f.Data[0] {
		t.Errorf("super-frame changed: %+v", got)
	}
	if c := r.Port(0); c.RxPackets != 3 || c.RxRoCE != 3 || r.Port(1).TxPackets != 3 {
		t.Errorf("port %+v", c)
	}

	var psns []wire.PSN
	p := &testProgram{spec: Spec{Split: true, Verify: true}, packet: func(_ *Ctx, p *Parsed) Verdict {
		psns = append(psns, p.BTH.PSN)
		if p.BTH.PSN == 1 {
			return Drop("odd")
		}
		return Forward()
	}}
	r = newRig(t, 2, p, nil)
	r.want("split", r.sendFrame(0, f), "[1 1]")
	if fmt.Sprint(psns) != "[0 1 2]" || !bytes.Equal(r.out.Frames[0].Data, packets[0]) || !bytes.Equal(r.out.Frames[1].Data, packets[2]) {
		t.Errorf("split: PSNs %v, frames\n%x", psns, r.out.Frames[1].Data)
	}
}

func FuzzSwitch(f *testing.F) {
	f.Add(roce(0, 1, 1, "hello"), 0)
	sf, _ := superOf(3)
	f.Add(sf.Data, sf.SegSize)
	f.Add(plain(mac(0), broadcast), 0)
	n := 0
	p := &testProgram{spec: Spec{Split: true}, packet: func(c *Ctx, p *Parsed) Verdict {
		switch n++; n % 4 {
		case 0:
			return Rewrite()
		case 1:
			c.Emit(&p.Frame, "copy")
			return Drop("x")
		case 2:
			return c.Hold(p, c.Now+1)
		}
		return Forward()
	}}
	f.Fuzz(func(t *testing.T, data []byte, seg int) {
		r := newRig(t, 3, p, nil)
		r.Observe(true)
		for in := range 3 {
			r.sendFrame(in, packetio.Frame{Data: slices.Clone(data), SegSize: seg})
			r.now++
			r.tick()
		}
		for _, f := range r.out.Frames {
			if f.Port < 0 || f.Port > 2 {
				t.Fatalf("port %d", f.Port)
			}
		}
	})
}

func BenchmarkForward(b *testing.B) {
	sf, _ := superOf(8)
	for _, c := range []struct {
		name  string
		frame packetio.Frame
	}{
		{"ethernet", packetio.Frame{Data: plain(mac(0), mac(1))}},
		{"roce64B", packetio.Frame{Data: roce(0, 1, 1, string(make([]byte, 64)))}},
		{"roce4KiB", packetio.Frame{Data: roce(0, 1, 1, string(make([]byte, 4096)))}},
		{"super8", sf},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := newRig(b, 4, &testProgram{}, nil)
			r.send(1, plain(mac(1), broadcast))
			b.ReportAllocs()
			for b.Loop() {
				r.out.Reset()
				r.Frame(r.now, 0, c.frame, &r.out)
			}
		})
	}
}
