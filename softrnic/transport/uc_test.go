package transport

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// rxeUnreliable are captures of UC whose work requests are known.
var rxeUnreliable = map[string]struct {
	op    verbs.WROpcode
	sizes []int
}{
	"uc_send":     {verbs.OpSend, []int{3000, 3000, 3000}},
	"uc_send_imm": {verbs.OpSendImm, []int{64, 64}},
	"uc_write":    {verbs.OpWrite, []int{3000, 3000, 3000}},
}

// Our UC requester sends the same packets as rxe's for known work requests, and our responder
// accepts the packets of rxe.
func TestUCLikeRxe(t *testing.T) {
	for name, c := range rxeUnreliable {
		t.Run(name, func(t *testing.T) {
			want := readGoldenOf(t, name, wire.ServiceUC)
			a := newSide(t, "a", 1, 1<<16, Config{QPN: 0x11, Type: verbs.UC})
			b := newSide(t, "b", 2, 1<<16, Config{QPN: 0x12, Type: verbs.UC})
			l := defaultLink
			l.mtu, l.psnA = verbs.MTU1024, want[0].pkt.BTH.PSN
			connect(t, a, b, l)
			for i, n := range c.sizes {
				recvOf(t, b, n)
				post(t, a, verbs.SendWR{ID: uint64(i), Op: c.op, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(0, n)}})
			}
			if len(a.out.Tx) != len(want) || len(a.out.Done) != len(c.sizes) {
				t.Fatalf("%d packets and %d completions, want %d and %d", len(a.out.Tx), len(a.out.Done), len(want), len(c.sizes))
			}
			base := want[0].pkt.RETH.VA
			for i := range want {
				p := want[i].pkt
				if got, want := requestText(&a.out.Tx[i].Packet), requestText(&p); got != want {
					t.Errorf("packet %d: %s, rxe sends %s", i, got, want)
				}
				p.RETH.RKey, p.RETH.VA = b.mem.RKey(), b.mem.Base()+p.RETH.VA-base
				b.qp.Handle(0, &p, &b.out)
			}
			if want := len(c.sizes); c.op != verbs.OpWrite && len(b.out.Done) != want {
				t.Errorf("%d messages arrived, want %d", len(b.out.Done), want)
			}
			if n := b.counters.DroppedMsgs; n != 0 || len(b.out.Tx) != 0 {
				t.Errorf("%d messages dropped, answers %v", n, b.out.Tx)
			}
			if c.op == verbs.OpWrite && int(b.counters.RxWriteRequests) != len(c.sizes) {
				t.Errorf("%d WRITEs executed", b.counters.RxWriteRequests)
			}
		})
	}
}

// Of the messages in a lossy capture, the complete ones arrive, with the bytes that were sent.
func TestUCTakesLossyCapture(t *testing.T) {
	packets := readGoldenOf(t, "loss_uc_send", wire.ServiceUC)
	b := newSide(t, "b", 2, 1<<16, Config{QPN: 0x118, Type: verbs.UC})
	l := defaultLink
	l.mtu, l.psnA = verbs.MTU1024, 0x100
	connect(t, newSide(t, "a", 1, 64, Config{QPN: 0x11, Type: verbs.UC}), b, l)
	const messages, size, perMessage = 15, 3000, 3
	present := map[int]int{}
	for i := range packets {
		present[int(packets[i].pkt.BTH.PSN-0x100)/perMessage]++
	}
	var whole []int
	for m := range messages {
		if present[m] == perMessage {
			whole = append(whole, m)
		}
		if err := b.qp.PostRecv(&verbs.RecvWR{ID: uint64(m), SGL: []verbs.SGE{b.sge(m*size, size)}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range packets {
		b.qp.Handle(0, &packets[i].pkt, &b.out)
	}
	if len(b.out.Done) != len(whole) || len(whole) == messages {
		t.Fatalf("%d messages arrived, whole are %v", len(b.out.Done), whole)
	}
	data := make([]byte, size)
	for i, m := range whole {
		pattern(data, m)
		if wc := b.out.Done[i].WC; wc.ID != uint64(i) || wc.ByteLen != size || !bytes.Equal(b.buf[i*size:(i+1)*size], data) {
			t.Errorf("message %d: %+v or other bytes", m, wc)
		}
	}
}

// Random messages cross a wire that loses, repeats and reorders: each message that arrives has the
// bytes of one sent message, and without faults every message arrives.
func TestUCRandomTraffic(t *testing.T) {
	for seed := uint64(1); seed <= 300; seed++ {
		r := rand.New(rand.NewPCG(seed, 9))
		faults := seed%3 != 0
		cfg := Config{QPN: 0x11, Type: verbs.UC, Window: 1 + r.IntN(8)}
		a := newSide(t, "a", seed, 1<<16, cfg)
		b := newSide(t, "b", seed+1, 1<<16, cfg)
		l := defaultLink
		l.psnA = 0xffffff - wire.PSN(r.IntN(40))
		connect(t, a, b, l)
		const size = 2000
		arrived, sent := 0, 30
		for m := range sent {
			n := 8 + r.IntN(size-8)
			pattern(a.buf[:n], m)
			a.buf[0], a.buf[1], a.buf[2] = byte(m), byte(n>>8), byte(n)
			if b.qp.Query().RecvQueued == 0 {
				recvOf(t, b, size)
			}
			post(t, a, verbs.SendWR{ID: uint64(m), Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(0, n)}})
			var packets []wire.Packet
			for {
				for i := range a.out.Tx {
					p := a.out.Tx[i].Packet
					p.Payload = bytes.Clone(p.Payload)
					packets = append(packets, p)
				}
				a.file()
				a.out.Reset()
				if a.qp.Deadline() == clock.Never {
					break
				}
				a.qp.Tick(0, &a.out)
			}
			if wc := onlyWC(t, a.scq); wc.Status != verbs.Success || wc.ID != uint64(m) {
				t.Fatalf("seed %d: send %+v", seed, wc)
			}
			if faults {
				packets = spoil(r, packets)
			}
			for i := range packets {
				b.qp.Handle(0, &packets[i], &b.out)
				for _, d := range b.out.Done {
					arrived++
					checkUCMessage(t, seed, b.buf, d.WC)
					recvOf(t, b, size)
				}
				b.out.Reset()
			}
		}
		if !faults && arrived != sent {
			t.Fatalf("seed %d: %d of %d arrived on a good wire", seed, arrived, sent)
		}
	}
}

// spoil loses, repeats and swaps packets.
func spoil(r *rand.Rand, in []wire.Packet) (out []wire.Packet) {
	for _, p := range in {
		switch r.IntN(12) {
		case 0:
		case 1:
			out = append(out, p, p)
		case 2:
			if n := len(out); n > 0 {
				out = append(out[:n-1], p, out[n-1])
				continue
			}
			fallthrough
		default:
			out = append(out, p)
		}
	}
	return out
}

func checkUCMessage(t *testing.T, seed uint64, buf []byte, wc verbs.WC) {
	t.Helper()
	m, n := int(buf[0]), int(buf[1])<<8|int(buf[2])
	want := make([]byte, n)
	pattern(want, m)
	want[0], want[1], want[2] = byte(m), byte(n>>8), byte(n)
	if wc.Status != verbs.Success || int(wc.ByteLen) != n || !bytes.Equal(buf[:n], want) {
		t.Fatalf("seed %d: message %d of %d bytes: %+v or other bytes", seed, m, n, wc)
	}
}

// A torn WRITE of an unreliable connection is complete after its pause.
func TestUCTornWrite(t *testing.T) {
	a := newSide(t, "a", 1, 1<<12, Config{QPN: 0x11, Type: verbs.UC})
	b := newSide(t, "b", 2, 1<<12, Config{QPN: 0x12, Type: verbs.UC})
	connect(t, a, b, defaultLink)
	b.env.Mem.SetTear(func(int) mem.Tear { return mem.Tear{Cut: 64, Pause: time.Microsecond} })
	pattern(a.buf[:200], 1)
	post(t, a, verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{a.sge(0, 200)}, RemoteAddr: b.mem.Base(), RKey: b.mem.RKey()})
	a.deliver(0, b)
	if bytes.Equal(b.buf[:200], a.buf[:200]) || b.qp.Deadline() == clock.Never {
		t.Error("the WRITE was not torn")
	}
	b.qp.Tick(b.qp.Deadline(), &b.out)
	if !bytes.Equal(b.buf[:200], a.buf[:200]) || len(b.out.Tx) != 0 {
		t.Error("the rest did not come")
	}
}

// Once buffers have their size, UC allocates no memory.
func TestUCAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a := newSide(t, "a", 1, 1<<16, Config{QPN: 0x11, Type: verbs.UC})
	b := newSide(t, "b", 2, 1<<16, Config{QPN: 0x12, Type: verbs.UC})
	connect(t, a, b, defaultLink)
	wr := verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(0, 5000)}}
	recv := verbs.RecvWR{SGL: []verbs.SGE{b.sge(0, 5000)}}
	wc := make([]verbs.WC, 4)
	if n := testing.AllocsPerRun(100, func() {
		if b.qp.PostRecv(&recv) != nil || a.qp.PostSend(0, &wr, &a.out) != nil {
			t.Fatal("post")
		}
		a.deliver(0, b)
		b.deliver(0, a)
		if a.scq.Poll(wc) != 1 || b.rcq.Poll(wc) != 1 {
			t.Fatal("a completion is missing")
		}
	}); n != 0 {
		t.Errorf("%v allocations a message", n)
	}
}
