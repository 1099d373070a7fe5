package engine

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// controlled turns congestion control on, for links of a rate in bits a second.
func controlled(rate int64, change func(p *congestion.Params)) func(*Config) {
	return func(c *Config) {
		p, _ := congestion.Profile(congestion.ProfilePaper, rate)
		if change != nil {
			change(&p)
		}
		c.Congestion = &congestion.Config{Params: p}
	}
}

// mark is what a congested switch does to a frame.
func mark(t testing.TB, b []byte) []byte {
	f := parse(t, bytes.Clone(b))
	f.SetECN(wire.CE)
	return f.AppendTo(nil)
}

func write(p *pair, n int) verbs.SendWR {
	return verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{p.a.sge(0, n)}, RemoteAddr: p.b.base, RKey: p.b.key}
}

func cnpTo(s, from *side) wire.Frame {
	r := from.qp.route
	return wire.Frame{
		Eth: r.eth, IPv4: r.ipv4, UDP: r.udp,
		Packet: wire.Packet{BTH: wire.BTH{Opcode: wire.CNP, PKey: wire.DefaultPKey, DestQP: s.qp.Num()}},
	}
}

// The bytes of a CNP: destination queue pair is that of the sender of the marked packet, PSN 0, no
// SE, M and AckReq, BECN, the P_Key of the marked packet, 16 reserved bytes of 0 (A17.9.3, CA17-44).
func TestCNPBytes(t *testing.T) {
	p := newPair(t, controlled(40_000_000_000, nil))
	p.post(t, p.a, write(p, 100))
	frame := p.a.out.Frames[0].Data
	if f := parse(t, bytes.Clone(frame)); f.ECN() != wire.ECT0 {
		t.Errorf("data has ECN %d, want ECT(0)", f.ECN())
	}
	p.b.e.Frame(0, 0, packetio.Frame{Data: mark(t, frame)}, &p.b.out)
	p.b.e.EndBatch(0, &p.b.out)
	if len(p.b.out.Frames) != 2 {
		t.Fatalf("%d answers, want a CNP and an ACK", len(p.b.out.Frames))
	}
	b := p.b.out.Frames[0].Data
	cnp := parse(t, bytes.Clone(b))
	if len(b)+4 != 78 || cnp.IPv4.TOS != 48<<2 || cnp.UDP.SrcPort != p.b.qp.route.udp.SrcPort {
		t.Errorf("%d bytes with FCS, TOS %#x, port %#x", len(b)+4, cnp.IPv4.TOS, cnp.UDP.SrcPort)
	}
	qpn := p.a.qp.Num()
	want := []byte{0x81, 0, 0xff, 0xff, 0x40, byte(qpn >> 16), byte(qpn >> 8), byte(qpn), 0, 0, 0, 0}
	want = append(want, make([]byte, 16)...)
	if got := b[14+20+8 : len(b)-4]; !bytes.Equal(got, want) {
		t.Errorf("CNP %s\nwant %s", hex.EncodeToString(got), hex.EncodeToString(want))
	}
	if ack := parse(t, bytes.Clone(p.b.out.Frames[1].Data)); ack.BTH.Opcode != wire.RCAck || ack.ECN() != 0 {
		t.Errorf("answer %v with ECN %d; an ACK is not ECN-capable", ack.BTH.Opcode, ack.ECN())
	}
	p.settle(t)
	a, c := p.a.e.counters, p.b.e.counters
	if c.RxMarked != 1 || c.TxCnp != 1 || a.RxCnp != 1 || a.RxCnpIgnored != 0 {
		t.Errorf("marked %d, CNPs sent %d, handled %d, ignored %d", c.RxMarked, c.TxCnp, a.RxCnp, a.RxCnpIgnored)
	}
	if list := p.a.e.Listing().Congestion(0); len(list) != 1 || list[0].Rate != 20_000_000_000 || list[0].CNPs != 1 || list[0].Peer != p.b.qp.Num() {
		t.Errorf("listing %+v", list)
	}
}

// The CNP for a datagram goes to the source queue pair of its DETH, over both families; CNPs are at
// most one an interval.
func TestCNPForDatagrams(t *testing.T) {
	for gid := range 2 {
		p := newUDPair(t, controlled(1_000_000_000, nil))
		for range 4 {
			recvInto(t, p.b, 0, 200)
		}
		p.tap = func(from *side, f packetio.Frame) bool {
			if from == p.a {
				p.b.e.Frame(p.now, 0, packetio.Frame{Data: mark(t, f.Data)}, &p.b.out)
			}
			return from == p.b
		}
		ah := ahTo(t, p.a, verbs.AHAttr{DestGID: p.b.e.cfg.GIDs[gid], SourceGID: gid})
		for range 4 {
			p.post(t, p.a, datagram(p.a, p.b, ah, 100))
			p.run(t, p.now+1000)
			p.now += 20_000
		}
		if c := p.b.e.counters; c.RxMarked != 4 || c.TxCnp != 2 {
			t.Errorf("family %d: %d marked, %d CNPs in 60 µs, want 2", gid, c.RxMarked, c.TxCnp)
		}
		if c := p.a.e.counters; c.RxCnp != 2 || c.RxCnpIgnored != 0 {
			t.Errorf("family %d: %d CNPs handled, %d ignored", gid, c.RxCnp, c.RxCnpIgnored)
		}
	}
}

// A CNP that is not for a queue pair of its sender is ignored and counted, and so is one at a NIC
// without congestion control. None has another effect.
func TestForgedCNPs(t *testing.T) {
	for name, change := range map[string]func(f *wire.Frame){
		"wrong peer":      func(f *wire.Frame) { f.IPv4.Src = [4]byte{1, 2, 3, 4} },
		"no queue pair":   func(f *wire.Frame) { f.BTH.DestQP ^= 1 },
		"GSI":             func(f *wire.Frame) { f.BTH.DestQP = 1 },
		"other partition": func(f *wire.Frame) { f.BTH.PKey = 0x8123 },
	} {
		p := newPair(t, controlled(1_000_000_000, nil))
		f := cnpTo(p.a, p.b)
		change(&f)
		p.a.e.Frame(0, 0, packetio.Frame{Data: f.AppendTo(nil)}, &p.a.out)
		if c := p.a.e.counters; c.RxCnpIgnored != 1 || c.RxCnp != 0 || len(p.a.out.Frames) != 0 {
			t.Errorf("%s: %+v, %d frames", name, c, len(p.a.out.Frames))
		}
		if list := p.a.e.Listing().Congestion(0); list[0].Rate != 1_000_000_000 {
			t.Errorf("%s: the rate is %d", name, list[0].Rate)
		}
	}
	p := newPair(t, nil)
	f := cnpTo(p.a, p.b)
	b := f.AppendTo(nil)
	p.a.e.Frame(0, 0, packetio.Frame{Data: bytes.Clone(b)}, &p.a.out)
	if c := p.a.e.counters; c.RxCnpIgnored != 1 || c.RxCnp != 0 {
		t.Errorf("without congestion control: %d ignored, %d handled", c.RxCnpIgnored, c.RxCnp)
	}
	for n := range len(b) {
		p.a.e.Frame(0, 0, packetio.Frame{Data: bytes.Clone(b[:n])}, &p.a.out)
	}
	if c := p.a.e.counters; c.RxCnpIgnored != 1 || c.RxCnp != 0 || len(p.a.out.Frames) != 0 {
		t.Errorf("cut off: %d ignored, %d handled", c.RxCnpIgnored, c.RxCnp)
	}
}

// A NIC without congestion control counts marks and sends no CNP; its packets are not ECN-capable.
func TestWithoutCongestionControl(t *testing.T) {
	p := newPair(t, nil)
	p.post(t, p.a, write(p, 100))
	b := p.a.out.Frames[0].Data
	if f := parse(t, bytes.Clone(b)); f.ECN() != 0 {
		t.Errorf("ECN %d", f.ECN())
	}
	p.b.e.Frame(0, 0, packetio.Frame{Data: mark(t, b)}, &p.b.out)
	p.b.e.EndBatch(0, &p.b.out)
	if c := p.b.e.counters; c.RxMarked != 1 || c.TxCnp != 0 || len(p.b.out.Frames) != 1 {
		t.Errorf("%d marked, %d CNPs, %d answers", c.RxMarked, c.TxCnp, len(p.b.out.Frames))
	}
	if list := p.a.e.Listing().Congestion(0); len(list) > 0 {
		t.Error("a listing of what is off")
	}
}

// transfer writes or reads n bytes and returns how long that takes.
func transfer(t *testing.T, p *pair, op verbs.WROpcode, n int) time.Duration {
	t.Helper()
	begin := p.now
	p.post(t, p.a, verbs.SendWR{Op: op, Flags: verbs.Signalled, SGL: []verbs.SGE{p.a.sge(0, n)}, RemoteAddr: p.b.base, RKey: p.b.key})
	p.run(t, p.now+20*second)
	if wc := p.a.poll(t); len(wc) != 1 || wc[0].Status != verbs.Success {
		t.Fatalf("completions %+v", wc)
	}
	return p.now.Sub(begin)
}

// Requests and READ responses leave at the rate of their queue pair, to 1 % of the bytes; without a
// retransmission, however low the rate is.
func TestQueuePairsKeepTheirRate(t *testing.T) {
	const n = 32 << 10
	for _, rate := range []int64{1_000_000, 100_000_000, 1_000_000_000} {
		for _, op := range []verbs.WROpcode{verbs.OpWrite, verbs.OpRead} {
			p := newPair(t, controlled(rate, func(c *congestion.Params) { c.Algorithm = congestion.AlgorithmFixed; c.MinRate = 1000 }))
			took := transfer(t, p, op, n)
			// The first packet leaves at once.
			bytes := 31 * (1024 + 62)
			want := time.Duration(int64(bytes) * 8 * int64(time.Second) / rate)
			if took < want*97/100 || took > want*103/100 {
				t.Errorf("%v at %d bit/s took %v, want %v", op, rate, took, want)
			}
			if again := p.a.e.counters.RetransPkts + p.a.e.counters.LocalAckTimeoutErr; again != 0 {
				t.Errorf("%v at %d bit/s: %d retransmissions", op, rate, again)
			}
		}
	}
}

// A CNP halves the rate at which requests leave (CA17-45).
func TestCNPSlows(t *testing.T) {
	const n = 32 << 10
	p := newPair(t, controlled(100_000_000, func(c *congestion.Params) { c.TimeReset, c.MinRate = time.Second, 1000 }))
	first := transfer(t, p, verbs.OpWrite, n)
	f := cnpTo(p.a, p.b)
	p.a.e.Frame(p.now, 0, packetio.Frame{Data: f.AppendTo(nil)}, &p.a.out)
	second := transfer(t, p, verbs.OpWrite, n)
	if ratio := float64(second) / float64(first); ratio < 1.95 || ratio > 2.1 {
		t.Errorf("%v before the CNP, %v behind it", first, second)
	}
	if err := p.a.e.Config().Congestion.Change(func(c *congestion.Params) error { c.MinRate = 0; return nil }); err == nil {
		t.Error("a wrong parameter was accepted")
	}
	if err := p.a.e.Config().Congestion.Change(func(c *congestion.Params) error { c.MaxRate = 25_000_000; return nil }); err != nil {
		t.Error(err)
	}
	if third := transfer(t, p, verbs.OpWrite, n); float64(third) < 1.9*float64(second) {
		t.Errorf("%v at half of the line rate before, %v at a quarter", second, third)
	}
}

// Several queue pairs of a NIC are served in turn: each gets its rate.
func TestManyPacedQueuePairs(t *testing.T) {
	const n, rate, qps = 16 << 10, 10_000_000, 8
	change := controlled(rate, func(c *congestion.Params) { c.Algorithm = congestion.AlgorithmFixed })
	p := newPair(t, change)
	ends := map[wire.QPN]clock.Time{}
	var list []*QP
	for range qps {
		a, errA := p.a.e.CreateQP(p.a.pd, p.a.cq, p.a.cq, verbs.QPInit{Type: verbs.RC, SignalAll: true})
		b, errB := p.b.e.CreateQP(p.b.pd, p.b.cq, p.b.cq, verbs.QPInit{Type: verbs.RC})
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		connect(t, 0, a, b, 0, verbs.MTU1024)
		connect(t, 0, b, a, 0, verbs.MTU1024)
		list = append(list, a)
	}
	for _, q := range list {
		if err := q.PostSend(0, []verbs.SendWR{{Op: verbs.OpWrite, SGL: []verbs.SGE{p.a.sge(0, n)}, RemoteAddr: p.b.base, RKey: p.b.key}}, &p.a.out); err != nil {
			t.Fatal(err)
		}
	}
	for len(ends) < qps {
		p.settle(t)
		for _, wc := range p.a.poll(t) {
			if wc.Status != verbs.Success {
				t.Fatalf("%+v", wc)
			}
			ends[wc.QPN] = p.now
		}
		at := clock.Min(p.a.e.Deadline(), p.b.e.Deadline())
		if len(ends) < qps && at == clock.Never {
			t.Fatal("queue pairs wait without a deadline")
		}
		if at != clock.Never {
			p.now = max(p.now, at)
			p.a.e.Tick(p.now, &p.a.out)
			p.b.e.Tick(p.now, &p.b.out)
		}
	}
	want := time.Duration(15*1086) * 8 * time.Second / rate
	for q, at := range ends {
		if d := at.Sub(0); d < want*97/100 || d > want*105/100 {
			t.Errorf("queue pair %#x took %v, want %v", uint32(q), d, want)
		}
	}
}

// A million hostile CNPs, from the peer and from others, leave the rate at its minimum, the tables as
// they were, and no timer but those of the rate.
func TestFloodOfCNPs(t *testing.T) {
	p := newPair(t, controlled(1_000_000_000, nil))
	r := rand.New(rand.NewPCG(1, 2))
	f := cnpTo(p.a, p.b)
	good := f.AppendTo(nil)
	var forged [][]byte
	for range 64 {
		f := cnpTo(p.a, p.b)
		f.IPv4.Src[3], f.BTH.DestQP = byte(r.Uint32()), wire.QPN(r.Uint32()&0xffffff)
		forged = append(forged, f.AppendTo(nil))
	}
	n := 1_000_000
	if testing.Short() {
		n = 50_000
	}
	buf := make([]byte, len(good))
	var now clock.Time
	step := func() {
		now += clock.Time(r.IntN(2000))
		b := good
		if r.IntN(2) == 0 {
			b = forged[r.IntN(len(forged))]
		}
		copy(buf, b)
		p.a.e.Frame(now, 0, packetio.Frame{Data: buf}, &p.a.out)
	}
	step()
	before := p.a.e.Tables.Objects()
	for range n {
		step()
	}
	if allocs := testing.AllocsPerRun(1000, step); allocs != 0 {
		t.Errorf("%v allocations a CNP", allocs)
	}
	c := p.a.e.counters
	if c.RxCnp+c.RxCnpIgnored < uint64(n) || c.RxCnp == 0 || len(p.a.out.Frames) != 0 || p.a.e.Tables.Objects() != before {
		t.Errorf("handled %d, ignored %d of %d; %d frames; %+v", c.RxCnp, c.RxCnpIgnored, n, len(p.a.out.Frames), p.a.e.Tables.Objects())
	}
	if list := p.a.e.Listing().Congestion(now); list[0].Rate != 40_000_000 {
		t.Errorf("the rate is %d, want rp_min_rate", list[0].Rate)
	}
}

// For any CNP, marked packet and time: no panic, no frame but CNPs and answers, and the rate stays
// within its bounds; the queue pair goes on afterwards.
func FuzzCongestion(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Add([]byte{255, 3, 0, 3, 128, 0, 3, 7, 7, 1, 1, 1})
	f.Fuzz(func(t *testing.T, script []byte) {
		p := newPair(t, controlled(1_000_000_000, func(c *congestion.Params) {
			if len(script) > 0 && script[0]&1 != 0 {
				m, _ := congestion.Profile(congestion.ProfileMLX, 1_000_000_000)
				*c = m
			}
		}))
		for i := 0; i+2 < len(script) && i < 300; i += 3 {
			p.now += clock.Time(script[i]) * 1000
			switch script[i+1] % 4 {
			case 0:
				g := cnpTo(p.a, p.b)
				g.BTH.DestQP ^= wire.QPN(script[i+2] & 1)
				g.IPv4.Src[3] ^= script[i+2] >> 7
				g.CNP[script[i+2]%16] = script[i+2]
				g.BTH.FECN = script[i+2]&2 != 0
				p.a.e.Frame(p.now, 0, packetio.Frame{Data: g.AppendTo(nil)}, &p.a.out)
			case 1:
				p.post(t, p.a, write(p, int(script[i+2])))
				if n := len(p.a.out.Frames); n > 0 {
					p.b.e.Frame(p.now, 0, packetio.Frame{Data: mark(t, p.a.out.Frames[n-1].Data)}, &p.b.out)
				}
			case 2:
				g := cnpTo(p.a, p.b)
				b := g.AppendTo(nil)
				p.a.e.Frame(p.now, 0, packetio.Frame{Data: b[:int(script[i+2])%len(b)]}, &p.a.out)
			default:
				p.exchange(p.a, p.b)
				p.exchange(p.b, p.a)
			}
			list := p.a.e.Listing().Congestion(p.now)
			if s := list[0]; s.Rate > 1_000_000_000 || s.Rate < 1_000_000 || s.Target < s.Rate || s.Alpha > 1 {
				t.Fatalf("state %+v", s)
			}
		}
		p.run(t, p.now+10*second)
		p.a.poll(t)
		transfer(t, p, verbs.OpWrite, 2000)
	})
}

// A NIC whose owner wakes up late makes up for it, in several bursts if it must: the rate is kept,
// and no queue pair waits without a deadline.
func TestLateOwner(t *testing.T) {
	const rate, n = 1_000_000_000, 64 << 10
	p := newPair(t, func(c *Config) {
		controlled(rate, func(p *congestion.Params) { p.Algorithm = congestion.AlgorithmFixed })(c)
		c.Congestion.Wake = 50 * time.Microsecond
	})
	r := rand.New(rand.NewPCG(1, 1))
	begin, sent := p.now, 0
	for range 40 {
		p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{p.a.sge(0, n/2), p.a.sge(0, n/2)}, RemoteAddr: p.b.base, RKey: p.b.key})
		for done := false; !done; {
			p.settle(t)
			for _, wc := range p.a.poll(t) {
				if wc.Status != verbs.Success {
					t.Fatalf("%+v", wc)
				}
				done = true
			}
			if at := clock.Min(p.a.e.Deadline(), p.b.e.Deadline()); !done && at == clock.Never {
				t.Fatal("the queue pair waits without a deadline")
			} else if !done {
				p.now = max(p.now, at).Add(time.Duration(r.IntN(600_000)))
				p.a.e.Tick(p.now, &p.a.out)
				p.b.e.Tick(p.now, &p.b.out)
			}
		}
		sent += 64 * (1024 + 62)
	}
	got := float64(sent) * 8 / p.now.Sub(begin).Seconds()
	if got < rate*0.9 || got > rate*1.05 || p.a.e.counters.RetransPkts > 0 {
		t.Errorf("%.3g bit/s instead of %d, %d packets sent again", got, rate, p.a.e.counters.RetransPkts)
	}
}

// A live change of rp_max_rate applies to the queue pairs of algorithm fixed at once.
func TestFixedRateChanges(t *testing.T) {
	p := newPair(t, controlled(1_000_000_000, func(p *congestion.Params) { p.Algorithm = congestion.AlgorithmFixed }))
	for _, rate := range []int64{1_000_000_000, 2_000_000, 3_000_000_000} {
		if err := p.a.e.Config().Congestion.Change(func(c *congestion.Params) error { c.MaxRate, c.MinRate = rate, 1_000_000; return nil }); err != nil {
			t.Fatal(err)
		}
		if list := p.a.e.Listing().Congestion(0); len(list) != 1 || list[0].Rate != rate || list[0].Target != rate {
			t.Errorf("at %d: %+v", rate, list)
		}
	}
}

// A flood of forged CNPs and NAKs, sent from other addresses, to other queue pairs and with any syndrome,
// moves no rate, is answered by nothing, and takes no memory.
func TestFloodOfForgedNotifications(t *testing.T) {
	p := newPair(t, controlled(1_000_000_000, nil))
	g := rand.New(rand.NewPCG(53, 13))
	cnp := cnpTo(p.a, p.b)
	cnp.IPv4.Src = [4]byte{10, 0, 0, 99}
	nak := cnp
	nak.BTH.Opcode = wire.RCAck
	const frames = 100_000
	flood := func(n int) {
		for i := range n {
			f := &cnp
			if i%2 == 1 {
				f = &nak
				f.BTH.PSN, f.AETH = wire.PSN(g.Uint32()&0xffffff), wire.AETH{Syndrome: wire.Syndrome(g.Uint32()), MSN: g.Uint32() & 0xffffff}
			}
			f.IPv4.Src[3] = byte(50 + g.IntN(200))
			f.BTH.DestQP = p.a.qp.Num() + wire.QPN(g.IntN(3))
			p.a.e.Frame(0, 0, packetio.Frame{Data: f.AppendTo(nil)}, &p.a.out)
		}
	}
	flood(frames)
	if c := p.a.e.counters; c.RxCnp != 0 || c.RxCnpIgnored != frames/2 || len(p.a.out.Frames) != 0 {
		t.Errorf("%d CNPs handled, %d ignored, %d frames sent", c.RxCnp, c.RxCnpIgnored, len(p.a.out.Frames))
	}
	if list := p.a.e.Listing().Congestion(0); len(list) != 1 || list[0].Rate != 1_000_000_000 || list[0].CNPs != 0 {
		t.Errorf("%+v", list)
	}
	if n := p.a.e.Deadline(); n != clock.Never {
		t.Errorf("a timer runs: %v", n)
	}
}

// A million forged NAKs, sequence errors, RNR NAKs and selective ones, from the peer's address while nothing
// is in flight, and from others and behind the window while a WRITE is: nothing is sent, no timer and no
// memory is taken, and the WRITE completes without a packet that is sent twice.
func TestFloodOfNAKs(t *testing.T) {
	p := newPair(t, controlled(1_000_000_000, func(c *congestion.Params) { c.Algorithm = congestion.AlgorithmSwift }))
	g := rand.New(rand.NewPCG(53, 54))
	nak := cnpTo(p.a, p.b)
	nak.BTH.Opcode = wire.RCAck
	syndromes := []wire.Syndrome{wire.NakPSNSequence, wire.NakRemoteOp, wire.NakRemoteAccess, 0x20 | 14, wire.Syndrome(0x7f)}
	buf := make([]byte, 0, 256)
	one := func(foreign bool) {
		f := nak
		f.AETH = wire.AETH{Syndrome: syndromes[g.IntN(len(syndromes))], MSN: g.Uint32() & 0xffffff}
		f.BTH.PSN = p.a.qp.q.Query().SendPSN.Add(1000 + g.IntN(1<<22)) // never in flight
		if foreign {
			f.IPv4.Src[3] = byte(50 + g.IntN(200))
			f.BTH.PSN = p.a.qp.q.Query().SendPSN.Add(-g.IntN(8))
		}
		buf = f.AppendTo(buf[:0])
		p.a.e.Frame(p.now, 0, packetio.Frame{Data: buf}, &p.a.out)
	}
	const flood = 500_000
	before := p.a.e.Tables.Objects()
	for i := range flood { // nothing is in flight
		one(i%2 == 0)
	}
	p.a.e.Tick(p.now, &p.a.out)
	if len(p.a.out.Frames) != 0 || p.a.e.Deadline() != clock.Never || p.a.e.Tables.Objects() != before {
		t.Errorf("%d frames, a deadline at %v, objects %+v of %+v", len(p.a.out.Frames), p.a.e.Deadline(), p.a.e.Tables.Objects(), before)
	}
	p.post(t, p.a, write(p, 8000))
	frames := len(p.a.out.Frames)
	for i := range flood {
		one(i%2 == 0)
	}
	if n := testing.AllocsPerRun(1000, func() { one(true); one(false) }); n != 0 {
		t.Errorf("%v allocations for two NAKs", n)
	}
	if len(p.a.out.Frames) != frames {
		t.Errorf("%d frames instead of %d", len(p.a.out.Frames), frames)
	}
	transfer(t, p, verbs.OpWrite, 2000)
	if c := p.a.e.counters; c.RetransPkts != 0 || p.a.e.Tables.Objects() != before {
		t.Errorf("%d packets sent again, objects %+v of %+v", c.RetransPkts, p.a.e.Tables.Objects(), before)
	}
}
