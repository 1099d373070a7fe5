package engine

import (
	"encoding/binary"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

const testService = mad.ServiceID(0x106_1c06)

func gsi(t testing.TB, e *Engine) *GSI {
	t.Helper()
	g, err := e.GSI()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// unconnected returns two NICs with new queue pairs.
func unconnected(t testing.TB) *pair {
	t.Helper()
	return &pair{a: newSide(t, newEngine(t, "a", 1, macA, nil, ipA, ip6A)), b: newSide(t, newEngine(t, "b", 2, macB, nil, ipB, ip6B))}
}

func dial(t testing.TB, p *pair, from, to netip.Addr) *CMConn {
	t.Helper()
	c, err := gsi(t, p.a.e).Connect(p.now, from, to, mad.REQ{Service: testService, QPN: p.a.qp.Num(), PSN: testPSN, MTU: 3, PKey: wire.DefaultPKey}, &p.a.out)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// establish makes a connection over the wire; gid is the index of the addresses.
func establish(t testing.TB, p *pair, l *CMListener, gid int) (a, b *CMConn) {
	t.Helper()
	a = dial(t, p, p.a.e.cfg.GIDs[gid].Addr(), p.b.e.cfg.GIDs[gid].Addr())
	p.settle(t)
	if b = l.Next(); b == nil || b.Request.QPN != p.a.qp.Num() || b.Peer != p.a.e.cfg.GIDs[gid].Addr() {
		t.Fatalf("request %+v", b)
	}
	connect(t, p.now, p.b.qp, p.a.qp, gid, verbs.MTU1024)
	if err := gsi(t, p.b.e).Accept(p.now, b, mad.REP{QPN: p.b.qp.Num(), PSN: testPSN}, &p.b.out); err != nil {
		t.Fatal(err)
	}
	p.settle(t)
	if a.Reply == nil || a.Reply.QPN != p.b.qp.Num() || a.End != 0 {
		t.Fatalf("reply %+v", a)
	}
	connect(t, p.now, p.a.qp, p.b.qp, gid, verbs.MTU1024)
	if err := gsi(t, p.a.e).Ready(p.now, a, &p.a.out); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func TestConnectionByDatagrams(t *testing.T) {
	for gid := range 2 {
		p := unconnected(t)
		l, err := gsi(t, p.b.e).Listen(testService, netip.Prefix{}, 4)
		if err != nil {
			t.Fatal(err)
		}
		a, b := establish(t, p, l, gid)
		p.settle(t)
		if !b.Established || gsi(t, p.a.e).ConnOf(p.a.qp.Num()) != a || gsi(t, p.b.e).ConnOf(p.b.qp.Num()) != b {
			t.Errorf("%+v and %+v", a, b)
		}
		verify(t, p)
		if err := gsi(t, p.b.e).Disconnect(p.now, b, &p.b.out); err != nil {
			t.Fatal(err)
		}
		p.settle(t)
		for _, s := range []*side{p.a, p.b} {
			if attr, err := s.qp.Query(); err != nil || attr.State != verbs.StateError {
				t.Errorf("%s: queue pair in %v, %v after the end", s.e.cfg.Name, attr.State, err)
			}
		}
		if a.End != cm.EventDisconnected || b.End != cm.EventDisconnected {
			t.Errorf("ends %v and %v", a.End, b.End)
		}
		p.run(t, 10*second)
		checkForgotten(t, p)
	}
}

func checkForgotten(t *testing.T, p *pair) {
	t.Helper()
	for _, s := range []*side{p.a, p.b} {
		g := gsi(t, s.e)
		if live, ended := g.Conns(); live+ended+len(g.conns)+len(g.gone) != 0 || s.e.Deadline() != clock.Never {
			t.Errorf("%s: %d live, %d ended, %d records", s.e.cfg.Name, live, ended, len(g.conns))
		}
	}
}

// The RTU is lost: the first packet of the connection takes its place.
func TestFirstPacketEstablishes(t *testing.T) {
	p := unconnected(t)
	l, err := gsi(t, p.b.e).Listen(testService, netip.Prefix{}, 4)
	if err != nil {
		t.Fatal(err)
	}
	_, b := establish(t, p, l, 0)
	p.a.out.Reset() // the RTU
	p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte("x"), RemoteAddr: p.b.base, RKey: p.b.key})
	if b.Established {
		t.Error("established too early")
	}
	p.settle(t)
	if !b.Established || p.b.qp.awaited {
		t.Errorf("%+v", b)
	}
}

// The destruction of a queue pair ends its connection, in every state of the connection, and leaves
// nothing behind.
func TestDestroyedQueuePairEndsConnection(t *testing.T) {
	for _, stage := range []string{"request", "reply", "established", "reset"} {
		p := unconnected(t)
		l, err := gsi(t, p.b.e).Listen(testService, netip.Prefix{}, 4)
		if err != nil {
			t.Fatal(err)
		}
		var b *CMConn
		if stage == "request" || stage == "reply" {
			dial(t, p, ipA, ipB)
			p.settle(t)
			b = l.Next()
		}
		switch stage {
		case "reply":
			connect(t, p.now, p.b.qp, p.a.qp, 0, verbs.MTU1024)
			if err := gsi(t, p.b.e).Accept(p.now, b, mad.REP{QPN: p.b.qp.Num()}, &p.b.out); err != nil {
				t.Fatal(err)
			}
			p.settle(t)
		case "established", "reset":
			_, b = establish(t, p, l, 0)
			p.settle(t)
		}
		if stage == "reset" {
			err = p.a.qp.ToReset()
		} else {
			err = p.a.qp.Destroy()
		}
		if err != nil {
			t.Fatal(err)
		}
		p.run(t, p.now.Add(mad.Time(20)))
		if b.End == 0 {
			t.Errorf("%s: the peer does not know", stage)
		}
		p.run(t, p.now.Add(mad.Time(26)))
		checkForgotten(t, p)
	}
}

// Refused requests push a connection that has ended out of time-wait: its record goes, too.
func TestRefusedRequestsEndTimeWait(t *testing.T) {
	const kept = 4096 // cm.Config.MaxTimeWait
	p := unconnected(t)
	l, err := gsi(t, p.b.e).Listen(testService, netip.Prefix{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	a, b := establish(t, p, l, 0)
	p.settle(t)
	if err := gsi(t, p.a.e).Disconnect(p.now, a, &p.a.out); err != nil {
		t.Fatal(err)
	}
	p.settle(t)
	other, err := p.a.e.CreateQP(p.a.pd, p.a.cq, p.a.cq, verbs.QPInit{})
	if err != nil {
		t.Fatal(err)
	}
	req := mad.REQ{Service: testService, QPN: other.Num(), PSN: testPSN, MTU: 3, PKey: wire.DefaultPKey}
	if _, err := gsi(t, p.a.e).Connect(p.now, ipA, ipB, req, &p.a.out); err != nil { // waits in the listener, which then has no room
		t.Fatal(err)
	}
	p.settle(t)
	for range kept {
		if c := dial(t, p, ipA, ipB); c != nil {
			p.settle(t)
			if c.End != cm.EventRejected {
				t.Fatalf("not refused: %+v", c)
			}
		}
	}
	if g := gsi(t, p.b.e); g.conns[b.ID] != nil {
		t.Errorf("the record of the connection is left: %+v", b)
	}
	gsi(t, p.b.e).Unlisten(p.now, l, &p.b.out)
	p.run(t, p.now.Add(mad.Time(22)))
	checkForgotten(t, p)
}

// A queue pair that was reset can be connected again at once, at either end.
func TestResetQueuePairConnectsAgain(t *testing.T) {
	p := unconnected(t)
	l, err := gsi(t, p.b.e).Listen(testService, netip.Prefix{}, 4)
	if err != nil {
		t.Fatal(err)
	}
	establish(t, p, l, 0)
	p.settle(t)
	for range 3 {
		for _, s := range []*side{p.a, p.b} {
			if err := s.qp.ToReset(); err != nil {
				t.Fatal(err)
			}
		}
		establish(t, p, l, 0)
		p.run(t, p.now)
		verify(t, p)
	}
	// The DREQ of the old connection arrives while b's queue pair makes the next one.
	if err := gsi(t, p.a.e).Disconnect(p.now, gsi(t, p.a.e).ConnOf(p.a.qp.Num()), &p.a.out); err != nil {
		t.Fatal(err)
	}
	if err := p.b.qp.ToReset(); err != nil {
		t.Fatal(err)
	}
	connect(t, p.now, p.b.qp, p.a.qp, 0, verbs.MTU1024)
	p.settle(t)
	if attr, err := p.b.qp.Query(); err != nil || attr.State != verbs.StateRTS {
		t.Errorf("state %v, %v", attr.State, err)
	}
}

func TestListenersAndRefusals(t *testing.T) {
	p := unconnected(t)
	g := gsi(t, p.b.e)
	c := dial(t, p, ipA, ipB)
	p.settle(t)
	if c.End != cm.EventRejected || c.Reject.Reason != mad.ReasonInvalidService {
		t.Errorf("no listener: %+v", c)
	}
	l, err := g.Listen(testService, netip.Prefix{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	wantErr(t, "second listener", errOf(g.Listen(testService, netip.Prefix{}, 1)), verbs.ErrBusy)
	first := dial(t, p, ipA, ipB)
	other, err := p.a.e.CreateQP(p.a.pd, p.a.cq, p.a.cq, verbs.QPInit{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := gsi(t, p.a.e).Connect(p.now, ipA, ipB, mad.REQ{Service: testService, QPN: other.Num(), MTU: 3, PKey: wire.DefaultPKey}, &p.a.out)
	if err != nil {
		t.Fatal(err)
	}
	p.settle(t)
	if second.End != cm.EventRejected || second.Reject.Reason != mad.ReasonNoResources || first.End != 0 {
		t.Errorf("full backlog: %+v and %+v", first, second)
	}
	taken := l.Next()
	if err := g.Reject(p.now, taken, cm.Refusal{Reason: mad.ReasonConsumer, Private: []byte("no")}, &p.b.out); err != nil {
		t.Fatal(err)
	}
	p.settle(t)
	if first.End != cm.EventRejected || string(first.Reject.Private[:3]) != "no\x00" {
		t.Errorf("refused: %+v", first)
	}
	waiting := dial(t, p, ipA, ipB)
	p.settle(t)
	g.Unlisten(p.now, l, &p.b.out)
	g.Unlisten(p.now, l, &p.b.out)
	p.settle(t)
	if waiting.End != cm.EventRejected || !l.Dead() || l.Next() != nil {
		t.Errorf("listener has ended: %+v", waiting)
	}
	p.run(t, 10*clock.Time(1e9))
	checkForgotten(t, p)

	_, err = gsi(t, p.a.e).Connect(p.now, ipA, netip.MustParseAddr("10.77.0.9"), mad.REQ{QPN: other.Num(), PKey: wire.DefaultPKey}, &p.a.out)
	wantErr(t, "no such host", err, verbs.ErrUnreachable)
	_, err = gsi(t, p.a.e).Connect(p.now, ipA, ipB, mad.REQ{QPN: 5, PKey: wire.DefaultPKey}, &p.a.out)
	wantErr(t, "no such queue pair", err, verbs.ErrInvalid)
	last := dial(t, p, ipA, ipB)
	p.a.e.Down(0)
	if !last.Dead() || p.a.e.Deadline() != clock.Never {
		t.Error("a connection outlives its NIC")
	}
	wantErr(t, "NIC is down", errOf(p.a.e.GSI()), verbs.ErrClosed)
	p.a.e.Up()
	wantErr(t, "of an earlier incarnation", gsi(t, p.a.e).Ready(p.now, last, &p.a.out), verbs.ErrClosed)
}

// A NIC connects to itself.
func TestConnectionToItself(t *testing.T) {
	e := newEngine(t, "a", 1, macA, nil, ipA)
	a, b := newSide(t, e), newSide(t, e)
	g := gsi(t, e)
	l, err := g.Listen(testService, netip.Prefix{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	var out packetio.Batch
	c, err := g.Connect(0, ipA, ipA, mad.REQ{Service: testService, QPN: a.qp.Num(), MTU: 3, PKey: wire.DefaultPKey}, &out)
	if err != nil {
		t.Fatal(err)
	}
	r := l.Next()
	if err := g.Accept(0, r, mad.REP{QPN: b.qp.Num()}, &out); err != nil {
		t.Fatal(err)
	}
	if err := g.Ready(0, c, &out); err != nil || !r.Established || len(out.Frames) != 0 {
		t.Errorf("%v, %+v, %d frames", err, r, len(out.Frames))
	}
}

// capturedMADs returns the frames to queue pair 1 in a capture between two Linux kernels.
func capturedMADs(t *testing.T, name string) (frames [][]byte) {
	t.Helper()
	const fileHeader, recordHeader = 24, 16
	b, err := os.ReadFile("../wire/testdata/golden/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for b = b[fileHeader:]; len(b) > 0; {
		n := int(binary.LittleEndian.Uint32(b[8:]))
		var f wire.Frame
		if raw := b[recordHeader : recordHeader+n]; wire.ParseFrame(raw, &f) == nil && f.BTH.DestQP == gsiQPN {
			frames = append(frames, raw)
		}
		b = b[recordHeader+n:]
	}
	return frames
}

// The NIC gets the frames of a Linux initiator, and its own frames have the form of Linux's: the
// same addresses, ports, flags, Q_Key and lengths (IBTA 3.9.4, 16.7).
func TestFramesAsLinux(t *testing.T) {
	for _, name := range []string{"cm_rping_v4.pcap", "cm_rping_v6.pcap", "cm_reject.pcap"} {
		frames := capturedMADs(t, name)
		req, want := parse(t, frames[0]), parse(t, frames[1])
		s := newSide(t, newEngine(t, "b", 2, req.Eth.Dst, func(c *Config) {
			c.Resolve = func(netip.Addr) (wire.MAC, bool) { return req.Eth.Src, true }
		}, req.DstAddr()))
		g := gsi(t, s.e)
		if name != "cm_reject.pcap" {
			l, err := g.Listen(testService, netip.Prefix{}, 1)
			if err != nil {
				t.Fatal(err)
			}
			s.e.Frame(0, 0, packetio.Frame{Data: frames[0]}, &s.out)
			if err := g.Accept(0, l.Next(), mad.REP{QPN: s.qp.Num()}, &s.out); err != nil {
				t.Fatal(err)
			}
		} else {
			s.e.Frame(0, 0, packetio.Frame{Data: frames[0]}, &s.out)
		}
		if len(s.out.Frames) != 1 || !wire.CheckICRC(s.out.Frames[0].Data) {
			t.Fatalf("%s: %d frames", name, len(s.out.Frames))
		}
		got := parse(t, s.out.Frames[0].Data)
		got.IPv4.ID, got.ICRC, got.BTH.PSN = want.IPv4.ID, want.ICRC, want.BTH.PSN // chosen by the sender, or computed from such a value
		if name != "cm_reject.pcap" {
			got.Payload, want.Payload = nil, nil // package cm compares these
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: -want +got\n%s", name, d)
		}
	}
}

// A datagram to queue pair 1 that is not a management datagram is dropped with a counter of its
// own.
func TestDropsAtQueuePairOne(t *testing.T) {
	s := newSide(t, newEngine(t, "b", 2, macB, nil, ipB))
	good := func() *wire.Frame {
		return &wire.Frame{
			Eth: wire.Ethernet{Dst: macB, Src: macA}, IPv4: wire.IPv4{TTL: 64, Src: ipA.As4(), Dst: ipB.As4()},
			Packet: wire.Packet{
				BTH:  wire.BTH{Opcode: wire.UDSendOnly, PKey: wire.DefaultPKey, DestQP: gsiQPN},
				DETH: wire.DETH{QKey: gsiQKey, SrcQP: gsiQPN}, Payload: mad.Append(nil, 1, &mad.DREQ{LocalID: 1}),
			},
		}
	}
	c := s.e.Counters()
	for name, tc := range map[string]struct {
		change  func(*wire.Frame)
		counter *uint64
	}{
		"opcode":  {func(f *wire.Frame) { f.BTH.Opcode = wire.RCSendOnly }, &c.RxUnsupported},
		"source":  {func(f *wire.Frame) { f.DETH.SrcQP = 7 }, &c.RxUnsupported},
		"Q_Key":   {func(f *wire.Frame) { f.DETH.QKey++ }, &c.QKeyErr},
		"P_Key":   {func(f *wire.Frame) { f.BTH.PKey = 0x8001 }, &c.RxPkeyErr},
		"address": {func(f *wire.Frame) { f.IPv4.Dst = ipA.As4() }, &c.RxNotMine},
	} {
		f := good()
		tc.change(f)
		before := *tc.counter
		s.e.Frame(0, 0, packetio.Frame{Data: f.AppendTo(nil)}, &s.out)
		if *tc.counter != before+1 || len(s.out.Frames) != 0 {
			t.Errorf("%s: counted %d times, %d answers", name, *tc.counter-before, len(s.out.Frames))
		}
	}
	short := good()
	short.Payload = short.Payload[:100]
	s.e.Frame(0, 0, packetio.Frame{Data: short.AppendTo(nil)}, &s.out)
	if n := gsi(t, s.e).Stats().Malformed; n != 1 {
		t.Errorf("%d malformed", n)
	}
	s.e.Frame(0, 0, packetio.Frame{Data: good().AppendTo(nil)}, &s.out)
	if len(s.out.Frames) != 1 {
		t.Error("the good one has no answer")
	}
}
