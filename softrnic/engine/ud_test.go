package engine

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

const testQKey = 0x11111111

// udSide is a NIC with a queue pair for datagrams in RTS, and a pair without cable for settle.
func udSide(t testing.TB, e *Engine) *side {
	t.Helper()
	s := newSide(t, e)
	qp, err := e.CreateQP(s.pd, s.cq, s.cq, verbs.QPInit{Type: verbs.UD})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		qp.ToInit(verbs.ToInit{QKey: testQKey}), qp.ToRTR(0, verbs.ToRTR{}), qp.ToRTS(0, verbs.ToRTS{SendPSN: 5}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s.qp = qp
	return s
}

func newUDPair(t testing.TB, change func(*Config)) *pair {
	t.Helper()
	return &pair{
		a: udSide(t, newEngine(t, "a", 1, macA, change, ipA, ip6A)),
		b: udSide(t, newEngine(t, "b", 2, macB, change, ipB, ip6B)),
	}
}

func ahTo(t testing.TB, s *side, a verbs.AHAttr) *AH {
	t.Helper()
	ah, err := s.e.CreateAH(s.pd, a)
	if err != nil {
		t.Fatal(err)
	}
	return ah
}

func datagram(s, to *side, ah *AH, n int) verbs.SendWR {
	return verbs.SendWR{
		Op: verbs.OpSend, Flags: verbs.Signalled, SGL: []verbs.SGE{s.sge(0, n)},
		AH: ah, RemoteQPN: to.qp.Num(), RemoteQKey: testQKey,
	}
}

// Work requests that fail after their payload was begun cost no memory, however many a program posts.
func TestFailedPayloadsOfOpenPackets(t *testing.T) {
	p := newUDPair(t, func(c *Config) { c.Open = true })
	a := p.a
	wr := datagram(a, p.b, ahTo(t, a, verbs.AHAttr{DestGID: p.b.e.cfg.GIDs[0]}), 1024)
	wr.SGL[0].LKey++
	fail := func() {
		if err := a.qp.PostSend(0, []verbs.SendWR{wr}, &a.out); err != nil {
			t.Fatal(err)
		}
		if wc := a.poll(t); len(wc) != 1 || wc[0].Status != verbs.LocProtErr {
			t.Fatalf("%+v", wc)
		}
		if err := a.qp.ResumeRTS(0, &a.out); err != nil {
			t.Fatal(err)
		}
	}
	const times = 4096
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		fail()
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > times*1024/2 {
		t.Errorf("%d bytes for %d datagrams of 1024 bytes that failed", n, times)
	}
}

func recvInto(t testing.TB, s *side, off, n int) {
	t.Helper()
	if err := s.qp.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{s.sge(off, n)}}}); err != nil {
		t.Fatal(err)
	}
}

// A datagram over either family has the addresses of its address handle, and the GRH area names its
// sender.
func TestDatagramThereAndBack(t *testing.T) {
	for gid, family := range []string{"IPv4", "IPv6"} {
		t.Run(family, func(t *testing.T) {
			p := newUDPair(t, nil)
			var frames []wire.Frame
			p.tap = func(_ *side, f packetio.Frame) bool {
				frames = append(frames, parse(t, bytes.Clone(f.Data)))
				return true
			}
			recvInto(t, p.b, 0, 4200)
			fill(p.a.buf[:4096], 3)
			there := ahTo(t, p.a, verbs.AHAttr{DestGID: p.b.e.cfg.GIDs[gid], SourceGID: gid, TrafficClass: 0x6a, HopLimit: 3})
			p.post(t, p.a, datagram(p.a, p.b, there, 4096))
			p.settle(t)
			wc := p.b.poll(t)
			if len(wc) != 1 || wc[0].Status != verbs.Success || wc[0].ByteLen != 4136 || !bytes.Equal(p.b.buf[40:4136], p.a.buf[:4096]) {
				t.Fatalf("received %+v", wc)
			}
			g, err := verbs.ParseGRH(p.b.buf)
			if want := (verbs.GRH{Source: p.a.e.cfg.GIDs[gid], Dest: p.b.e.cfg.GIDs[gid], TrafficClass: 0x6a, HopLimit: 3}); err != nil || g != want {
				t.Fatalf("GRH %+v, %v; want %+v", g, err, want)
			}
			recvInto(t, p.a, 8192, 100)
			back := ahTo(t, p.b, verbs.AHAttr{DestGID: g.Source, SourceGID: gid})
			reply := datagram(p.b, p.a, back, 10)
			reply.RemoteQPN = wc[0].SrcQPN
			p.post(t, p.b, reply)
			p.settle(t)
			if got := p.a.poll(t); len(got) != 2 || got[1].SrcQPN != p.b.qp.Num() || got[1].ByteLen != 50 {
				t.Fatalf("reply %+v", got)
			}
			f := frames[0]
			if f.V6 != (gid == 1) || f.UDP.SrcPort != datagramPort(p.a.qp.Num()) || f.BTH.PSN != 5 || f.BTH.AckReq ||
				f.DETH != (wire.DETH{QKey: testQKey, SrcQP: p.a.qp.Num()}) {
				t.Errorf("frame %+v", f)
			}
			if gid == 0 && (f.IPv4.TOS != 0x6a || f.IPv4.TTL != 3) || gid == 1 && (f.IPv6.TrafficClass != 0x6a || f.IPv6.HopLimit != 3) {
				t.Errorf("frame %+v", f)
			}
		})
	}
}

// The source ports of datagrams are those that Linux rxe chose in the captures.
func TestDatagramPortLikeRxe(t *testing.T) {
	for n, want := range map[wire.QPN]uint16{1: 55410, 0x27: 63843, 0x28: 53717, 0x1e: 56671, 0xabcdef: 58314} {
		if got := datagramPort(n); got != want {
			t.Errorf("QP %#x: port %d, rxe uses %d", n, got, want)
		}
	}
}

// One queue pair sends to many, also to itself. It receives from any sender that knows the Q_Key.
func TestDatagramsToMany(t *testing.T) {
	p := newUDPair(t, nil)
	other := udSide(t, p.b.e)
	self := ahTo(t, p.a, verbs.AHAttr{DestGID: p.a.e.cfg.GIDs[0]})
	toB := ahTo(t, p.a, verbs.AHAttr{DestGID: p.b.e.cfg.GIDs[0]})
	for _, s := range []*side{p.a, p.b, other} {
		recvInto(t, s, 100, 60)
	}
	wrong := datagram(p.a, p.b, toB, 8)
	wrong.RemoteQKey++
	p.post(t, p.a, datagram(p.a, p.a, self, 8), wrong, datagram(p.a, p.b, toB, 8), datagram(p.a, other, toB, 8))
	p.settle(t)
	if n := len(p.a.poll(t)); n != 5 {
		t.Errorf("%d completions at the sender, want 4 sends and a receive", n)
	}
	if len(p.b.poll(t)) != 1 || len(other.poll(t)) != 1 || p.b.e.counters.QKeyErr != 1 {
		t.Error("a datagram is missing")
	}
}

// An invalid address handle is refused when it is made or used.
func TestAddressHandles(t *testing.T) {
	p := newUDPair(t, func(c *Config) { c.Limits.AHs = 2; c.LinkMTU = 1500 })
	a := p.a
	if m := a.e.Device().ActiveMTU; m != verbs.MTU1024 {
		t.Errorf("active MTU %d of a link of 1500", m)
	}
	create := func(attr verbs.AHAttr) error { _, err := a.e.CreateAH(a.pd, attr); return err }
	for name, c := range map[string]struct {
		attr verbs.AHAttr
		want error
	}{
		"no such GID":    {verbs.AHAttr{DestGID: verbs.GIDOf(ipB), SourceGID: 2}, verbs.ErrInvalid},
		"other family":   {verbs.AHAttr{DestGID: verbs.GIDOf(ip6B)}, verbs.ErrInvalid},
		"unknown":        {verbs.AHAttr{DestGID: verbs.GIDOf4([4]byte{9, 9, 9, 9})}, verbs.ErrUnreachable},
		"negative index": {verbs.AHAttr{DestGID: verbs.GIDOf(ipB), SourceGID: -1}, verbs.ErrInvalid},
	} {
		if err := create(c.attr); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	good := verbs.AHAttr{DestGID: verbs.GIDOf(ipB)}
	ah, second := ahTo(t, a, good), ahTo(t, a, good)
	if err := create(good); !errors.Is(err, verbs.ErrLimit) || ah.Handle() == second.Handle() || ah.Handle() == 0 {
		t.Errorf("third of two: %v", err)
	}
	post := func(s *side, wr verbs.SendWR) error { return s.qp.PostSend(0, []verbs.SendWR{wr}, &s.out) }
	elsewhere := newSide(t, a.e)
	foreign := udSide(t, a.e)
	if err := post(foreign, datagram(foreign, p.b, ah, 8)); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("of another domain: %v", err)
	}
	if err := elsewhere.pd.Dealloc(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("domain in use: %v", err)
	}
	// If a handle is destroyed while a datagram waits for it, the datagram is dropped.
	if err := a.qp.ToSQD(0, &a.out); err != nil {
		t.Fatal(err)
	}
	if err := post(a, datagram(a, p.b, ah, 8)); err != nil {
		t.Fatal(err)
	}
	if err := ah.Destroy(); err != nil {
		t.Fatal(err)
	}
	if err := a.qp.ResumeRTS(0, &a.out); err != nil {
		t.Fatal(err)
	}
	if err := post(a, datagram(a, p.b, ah, 8)); !errors.Is(err, verbs.ErrInvalid) || len(a.out.Frames) != 0 {
		t.Errorf("destroyed: %v, %d frames", err, len(a.out.Frames))
	}
	if err := ah.Destroy(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("twice: %v", err)
	}
	a.e.Down(0)
	if err := second.Destroy(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("after a crash: %v", err)
	}
}

// With the smallest link MTU, a packet at path MTU 256 does not fit with IPv6 headers.
func TestDatagramsOnASmallLink(t *testing.T) {
	e := newEngine(t, "a", 1, macA, func(c *Config) { c.LinkMTU = 330 }, ipA, ip6A)
	s := udSide(t, e)
	ahTo(t, s, verbs.AHAttr{DestGID: verbs.GIDOf(ipB)})
	if _, err := e.CreateAH(s.pd, verbs.AHAttr{DestGID: verbs.GIDOf(ip6B), SourceGID: 1}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("IPv6: %v", err)
	}
}

func FuzzDatagramFrame(f *testing.F) {
	p := newUDPair(f, nil)
	ah := ahTo(f, p.a, verbs.AHAttr{DestGID: p.b.e.cfg.GIDs[0]})
	p.post(f, p.a, datagram(p.a, p.b, ah, 100))
	f.Add(bytes.Clone(p.a.out.Frames[0].Data))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := newUDPair(t, func(c *Config) { c.NoICRCCheck = true })
		recvInto(t, p.b, 1000, 200)
		var fr wire.Frame
		if wire.ParseFrame(b, &fr) == nil {
			fr.Eth.Dst, fr.IPv4.Dst, fr.IPv6.Dst = macB, ipB.As4(), ip6B.As16()
			fr.BTH.DestQP, fr.BTH.PKey = p.b.qp.Num(), 0xffff
			b = fr.AppendTo(nil)
		}
		p.b.e.Frame(0, 0, packetio.Frame{Data: b}, &p.b.out)
		if len(p.b.out.Frames) != 0 || !bytes.Equal(p.b.buf[:1000], make([]byte, 1000)) || !bytes.Equal(p.b.buf[1200:2000], make([]byte, 800)) {
			t.Error("answered, or wrote outside of the receive")
		}
	})
}

// A flow label is in the IPv6 header and makes the UDP source port over both families, for
// connections and datagrams; without a flow label the queue pair decides the port (A17.3.1/label).
func TestFlowLabels(t *testing.T) {
	for _, gid := range []int{0, 1} {
		for label, want := range map[uint32]uint16{1: 0xc001, 0x3fff: 0xffff, 0x4000: 0xc001, 0xfffff: 0xc000 | 0x3fff ^ 0x3f, 0: 0} {
			p := unconnected(t)
			if err := p.a.qp.ToInit(verbs.ToInit{}); err != nil {
				t.Fatal(err)
			}
			rtr := verbs.ToRTR{DestQPN: p.b.qp.Num(), DestGID: p.b.e.cfg.GIDs[gid], SourceGID: gid, PathMTU: verbs.MTU1024, FlowLabel: label}
			bad := rtr
			bad.FlowLabel = 1 << 20
			wantErr(t, "21 bits", p.a.qp.ToRTR(0, bad), verbs.ErrInvalid)
			if err := p.a.qp.ToRTR(0, rtr); err != nil {
				t.Fatal(err)
			}
			if err := p.a.qp.ToRTS(0, verbs.ToRTS{}); err != nil {
				t.Fatal(err)
			}
			p.post(t, p.a, verbs.SendWR{Op: verbs.OpSend})
			d := made(p.a.e.CreateQP(p.a.pd, p.a.cq, p.a.cq, verbs.QPInit{Type: verbs.UD}))
			for _, err := range []error{d.ToInit(verbs.ToInit{}), d.ToRTR(0, verbs.ToRTR{}), d.ToRTS(0, verbs.ToRTS{})} {
				if err != nil {
					t.Fatal(err)
				}
			}
			ah := made(p.a.e.CreateAH(p.a.pd, verbs.AHAttr{DestGID: p.b.e.cfg.GIDs[gid], SourceGID: gid, FlowLabel: label}))
			if err := d.PostSend(0, []verbs.SendWR{{Op: verbs.OpSend, AH: handleOf{ah}, RemoteQPN: 5}}, &p.a.out); err != nil {
				t.Fatal(err)
			}
			ports := []uint16{sourcePort(p.a.qp.Num(), p.b.qp.Num()), datagramPort(d.Num())}
			for i, f := range p.a.out.Frames {
				fr := parse(t, f.Data)
				port := want
				if label == 0 {
					port = ports[i]
				}
				if fr.UDP.SrcPort != port || fr.V6 && fr.IPv6.FlowLabel != label {
					t.Errorf("GID %d, label %#x, frame %d: port %#x, want %#x; label %#x", gid, label, i, fr.UDP.SrcPort, port, fr.IPv6.FlowLabel)
				}
			}
			if len(p.a.out.Frames) != 2 {
				t.Errorf("%d frames", len(p.a.out.Frames))
			}
		}
	}
}
