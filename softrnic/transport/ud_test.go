package transport

import (
	"bytes"
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// testAH is an address handle whose address no host has.
type testAH uint32

func (a testAH) Handle() uint32 { return uint32(a) }
func (testAH) Destroy() error   { return nil }

const testQKey = 0x11111111

// newUD returns a queue pair for datagrams in RTS.
func newUD(t testing.TB, name string, seed uint64, qkey uint32) *side {
	t.Helper()
	s := newSide(t, name, seed, 1<<16, Config{QPN: wire.QPN(0x10 + seed), Type: verbs.UD})
	for _, err := range []error{
		s.qp.ToInit(verbs.ToInit{QKey: qkey}), s.qp.ToRTR(0, verbs.ToRTR{}), s.qp.ToRTS(0, verbs.ToRTS{SendPSN: 0xffffff}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func datagramTo(peer *side, from *side, n int) verbs.SendWR {
	return verbs.SendWR{
		Op: verbs.OpSend, Flags: verbs.Signalled, SGL: []verbs.SGE{from.sge(0, n)},
		AH: testAH(5), RemoteQPN: peer.qp.Num(), RemoteQKey: testQKey,
	}
}

// datagrams delivers the datagrams of a to b, with an IPv4 header of 20 bytes of value 4.
func datagrams(a, b *side) {
	a.file()
	for i := range a.out.Tx {
		b.qp.HandleDatagram(0, &a.out.Tx[i].Packet, bytes.Repeat([]byte{4}, 20), &b.out)
	}
	a.out.Reset()
	b.file()
}

// A datagram carries Q_Key, source queue pair and PSN. The receive buffer has an area with the IP
// header at its end, and then the payload (IBTA 9.8.3).
func TestDatagram(t *testing.T) {
	a, b := newUD(t, "a", 1, testQKey), newUD(t, "b", 2, testQKey)
	recvOf(t, b, 2000)
	recvOf(t, b, 2000)
	pattern(a.buf[:1000], 3)
	wr := datagramTo(b, a, 1000)
	post(t, a, wr)
	wr.Op, wr.Imm, wr.Flags = verbs.OpSendImm, 9, verbs.Solicited
	post(t, a, wr)
	tx := a.out.Tx[1]
	if p := tx.Packet; len(a.out.Tx) != 2 || tx.AH != 5 || p.BTH.PSN != 0 || p.BTH.DestQP != b.qp.Num() || p.BTH.AckReq ||
		p.BTH.Opcode != wire.UDSendOnlyImm || p.DETH != (wire.DETH{QKey: testQKey, SrcQP: a.qp.Num()}) || !p.BTH.Solicited {
		t.Errorf("packet %+v", tx)
	}
	datagrams(a, b)
	if wc := onlyWC(t, a.scq); wc.Status != verbs.Success || wc.Opcode != verbs.WCSend {
		t.Errorf("send completion %+v", wc)
	}
	var wc [2]verbs.WC
	if b.rcq.Poll(wc[:]) != 2 {
		t.Fatal("not two datagrams")
	}
	for i := range wc {
		if wc[i].Status != verbs.Success || wc[i].ByteLen != 1040 || wc[i].SrcQPN != a.qp.Num() || wc[i].QPN != b.qp.Num() {
			t.Errorf("completion %+v", wc[i])
		}
	}
	if wc[0].Flags != verbs.WithGRH|verbs.OverIPv4 || wc[1].Flags != verbs.WithGRH|verbs.OverIPv4|verbs.WithImm || wc[1].Imm != 9 || !wc[1].Solicited || wc[0].Solicited {
		t.Errorf("completions %+v", wc)
	}
	if !bytes.Equal(b.buf[:20], make([]byte, 20)) || !bytes.Equal(b.buf[20:40], bytes.Repeat([]byte{4}, 20)) || !bytes.Equal(b.buf[40:1040], a.buf[:1000]) {
		t.Error("area or payload are wrong")
	}
}

// A datagram that the receiver does not accept is dropped, counted by its reason, and the receive
// stays posted.
func TestDatagramsDropped(t *testing.T) {
	for name, c := range map[string]struct {
		recv    int
		change  func(p *wire.Packet)
		counter func(c *metrics.NIC) uint64
	}{
		"Q_Key":      {2000, func(p *wire.Packet) { p.DETH.QKey ^= 1 }, func(c *metrics.NIC) uint64 { return c.QKeyErr }},
		"no receive": {0, func(*wire.Packet) {}, func(c *metrics.NIC) uint64 { return c.OutOfBuffer }},
		"too short":  {139, func(*wire.Packet) {}, func(c *metrics.NIC) uint64 { return c.RespInvalidErr }},
		"over MTU":   {2000, func(p *wire.Packet) { p.Payload = make([]byte, 1025) }, func(c *metrics.NIC) uint64 { return c.RespInvalidErr }},
		"opcode":     {2000, func(p *wire.Packet) { p.BTH.Opcode = 0x66 }, func(c *metrics.NIC) uint64 { return c.RespInvalidErr }},
		"service":    {2000, func(p *wire.Packet) { p.BTH.Opcode = wire.UCSendOnly }, func(c *metrics.NIC) uint64 { return c.RxUnsupported }},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newUD(t, "a", 1, testQKey), newUD(t, "b", 2, testQKey)
			if c.recv > 0 {
				recvOf(t, b, c.recv)
			}
			post(t, a, datagramTo(b, a, 100))
			c.change(&a.out.Tx[0].Packet)
			datagrams(a, b)
			if n := c.counter(&b.counters); n != 1 || b.rcq.Len() != 0 || b.qp.State() != verbs.StateRTS || b.buf[30] != 0 {
				t.Errorf("counted %d, %d completions, state %v", n, b.rcq.Len(), b.qp.State())
			}
			if want := min(c.recv, 1); b.qp.Query().RecvQueued != want {
				t.Errorf("%d receives are left", b.qp.Query().RecvQueued)
			}
		})
	}
}

// The PSN of a datagram does not matter, and a receive of exactly the length is filled.
func TestDatagramAnyPSN(t *testing.T) {
	a, b := newUD(t, "a", 1, testQKey), newUD(t, "b", 2, testQKey)
	for _, psn := range []wire.PSN{7, 7, 3} {
		recvOf(t, b, 140)
		post(t, a, datagramTo(b, a, 100))
		a.out.Tx[0].Packet.BTH.PSN = psn
		datagrams(a, b)
		if wc := onlyWC(t, b.rcq); wc.Status != verbs.Success || wc.ByteLen != 140 {
			t.Errorf("%+v", wc)
		}
		onlyWC(t, a.scq)
	}
}

// If the Q_Key of a work request has its highest bit set, the queue pair's Q_Key is used, which
// cannot have that bit: no application sends with the Q_Key of queue pair 1 (IBTA 10.2.5/q-key).
func TestPrivilegedQKey(t *testing.T) {
	const own = 0x7fff0000
	a := newUD(t, "a", 1, own)
	wr := datagramTo(a, a, 8)
	wr.RemoteQKey = 0x80010000
	post(t, a, wr)
	wr.RemoteQKey = 0x7fffffff
	post(t, a, wr)
	if x, y := a.out.Tx[0].Packet.DETH.QKey, a.out.Tx[1].Packet.DETH.QKey; x != own || y != 0x7fffffff {
		t.Errorf("Q_Keys %#x and %#x", x, y)
	}
	for _, kind := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD} {
		s := newSide(t, "s", 1, 64, Config{QPN: 0x11, Type: kind})
		for _, key := range []uint32{1 << 31, 0x80010000, 0xffffffff} {
			if err := s.qp.ToInit(verbs.ToInit{QKey: key}); !errors.Is(err, verbs.ErrAccess) || s.qp.State() != verbs.StateReset {
				t.Errorf("%v with Q_Key %#x: %v, %v", kind, key, err, s.qp.State())
			}
		}
		if err := s.qp.ToInit(verbs.ToInit{QKey: 1<<31 - 1}); err != nil {
			t.Errorf("%v: %v", kind, err)
		}
	}
}

// A message longer than the port's MTU completes and is not sent (C10-93.1.1); one of exactly that
// length is sent.
func TestDatagramMTU(t *testing.T) {
	a := newUD(t, "a", 1, testQKey)
	post(t, a, datagramTo(a, a, 1024))
	post(t, a, datagramTo(a, a, 1025))
	if len(a.out.Tx) != 1 || len(a.out.Done) != 2 || a.out.Done[1].WC.Status != verbs.Success || a.counters.TooLong != 1 {
		t.Errorf("%d packets, %+v, %d too long", len(a.out.Tx), a.out.Done, a.counters.TooLong)
	}
}

// Invalid work requests are refused at the post. A send with bad memory stops the send queue only;
// a receive with bad memory ends the queue pair.
func TestDatagramErrors(t *testing.T) {
	a, b := newUD(t, "a", 1, testQKey), newUD(t, "b", 2, testQKey)
	for name, change := range map[string]func(wr *verbs.SendWR){
		"no handle":  func(wr *verbs.SendWR) { wr.AH = nil },
		"handle 0":   func(wr *verbs.SendWR) { wr.AH = testAH(0) },
		"remote QPN": func(wr *verbs.SendWR) { wr.RemoteQPN = 1 << 24 },
		"write":      func(wr *verbs.SendWR) { wr.Op = verbs.OpWrite },
		"local inv":  func(wr *verbs.SendWR) { wr.Op = verbs.OpLocalInv },
	} {
		wr := datagramTo(b, a, 8)
		change(&wr)
		if err := a.qp.PostSend(0, &wr, &a.out); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	wr := datagramTo(b, a, 8)
	wr.SGL[0].LKey ^= 0xff
	post(t, a, wr)
	a.file()
	if wc := onlyWC(t, a.scq); wc.Status != verbs.LocProtErr || a.qp.State() != verbs.StateSQE || len(a.out.Tx) != 0 {
		t.Errorf("%+v, state %v", wc, a.qp.State())
	}
	recvOf(t, a, 100)
	post(t, b, datagramTo(a, b, 8))
	datagrams(b, a)
	if wc := onlyWC(t, a.rcq); wc.Status != verbs.Success {
		t.Errorf("receive in SQE: %+v", wc)
	}
	if err := a.qp.ResumeRTS(0, &a.out); err != nil {
		t.Fatal(err)
	}
	if err := b.qp.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{{Addr: 1, LKey: 1, Length: 500}}}); err != nil {
		t.Fatal(err)
	}
	post(t, a, datagramTo(b, a, 8))
	datagrams(a, b)
	if wc := onlyWC(t, b.rcq); wc.Status != verbs.LocProtErr || b.qp.State() != verbs.StateError {
		t.Errorf("%+v, state %v", wc, b.qp.State())
	}
}

// A long queue that state SQD held back is sent in bursts of a window.
func TestDatagramBursts(t *testing.T) {
	a := newUD(t, "a", 1, testQKey)
	if err := a.qp.ToSQD(0, &a.out); err != nil {
		t.Fatal(err)
	}
	for range 128 {
		post(t, a, datagramTo(a, a, 8))
	}
	a.qp.core.cfg.Window = 50
	if err := a.qp.ResumeRTS(0, &a.out); err != nil {
		t.Fatal(err)
	}
	for want := 50; want < 128; want += 50 {
		if len(a.out.Tx) != want || a.qp.Deadline() != 0 {
			t.Fatalf("%d sent, deadline %v", len(a.out.Tx), a.qp.Deadline())
		}
		a.qp.Tick(0, &a.out)
	}
	if len(a.out.Tx) != 128 || len(a.out.Done) != 128 {
		t.Errorf("%d sent, %d complete", len(a.out.Tx), len(a.out.Done))
	}
}

// Our UD requester sends the same packets as rxe's for known work requests, and our responder
// accepts those of rxe.
func TestUDLikeRxe(t *testing.T) {
	for name, c := range map[string]struct {
		op    verbs.WROpcode
		sizes []int
	}{
		"ud_send":      {verbs.OpSend, []int{67, 66, 65, 64}},
		"ud_send_imm":  {verbs.OpSendImm, []int{1000, 1000}},
		"perf_send_ud": {verbs.OpSend, []int{512, 512, 512, 512, 512, 512, 512, 512, 512, 512}},
	} {
		t.Run(name, func(t *testing.T) {
			want := readGoldenOf(t, name, wire.ServiceUD)
			if len(want) != len(c.sizes) {
				t.Fatalf("%d packets in the capture", len(want))
			}
			a, b := newUD(t, "a", 1, testQKey), newUD(t, "b", 2, testQKey)
			a.qp.req.sender.nextPSN = want[0].pkt.BTH.PSN
			for i := range want {
				p := &want[i].pkt
				wr := datagramTo(b, a, c.sizes[i])
				wr.Op, wr.Imm = c.op, p.ImmDt
				post(t, a, wr)
				got := &a.out.Tx[i].Packet
				if got.DETH.SrcQP = p.DETH.SrcQP; requestText(got) != requestText(p) || got.DETH != p.DETH || got.ImmDt != p.ImmDt {
					t.Errorf("packet %d: %s %+v, rxe sends %s %+v", i, requestText(got), got.DETH, requestText(p), p.DETH)
				}
				recvOf(t, b, 40+c.sizes[i])
				b.qp.HandleDatagram(0, p, make([]byte, 20), &b.out)
				b.file()
				if wc := onlyWC(t, b.rcq); wc.Status != verbs.Success || int(wc.ByteLen) != 40+c.sizes[i] || wc.SrcQPN != p.DETH.SrcQP || wc.Imm != p.ImmDt ||
					!bytes.Equal(b.buf[40:40+c.sizes[i]], p.Payload) {
					t.Errorf("datagram %d: %+v or other bytes", i, wc)
				}
			}
		})
	}
}

// Once buffers have their size, datagrams allocate no memory.
func TestUDAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a, b := newUD(t, "a", 1, testQKey), newUD(t, "b", 2, testQKey)
	wr, recv := datagramTo(b, a, 1000), verbs.RecvWR{SGL: []verbs.SGE{b.sge(0, 1040)}}
	wc, ip := make([]verbs.WC, 4), make([]byte, 20)
	if n := testing.AllocsPerRun(100, func() {
		if b.qp.PostRecv(&recv) != nil || a.qp.PostSend(0, &wr, &a.out) != nil {
			t.Fatal("post")
		}
		a.file()
		b.qp.HandleDatagram(0, &a.out.Tx[0].Packet, ip, &b.out)
		a.out.Reset()
		b.file()
		if a.scq.Poll(wc) != 1 || b.rcq.Poll(wc) != 1 {
			t.Fatal("a completion is missing")
		}
	}); n != 0 {
		t.Errorf("%v allocations a datagram", n)
	}
}
