package transport

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/selective"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// selectivePair returns two connected sides with selective retransmission.
func selectivePair(t testing.TB, kind selective.Kind) (a, b *side) {
	c := Config{QPN: 0x11, Recovery: Recovery{Kind: kind}}
	a = newSide(t, "a", 1, 1<<16, c)
	c.QPN, c.CoalesceAcks = 0x12, true
	b = newSide(t, "b", 2, 1<<16, c)
	l := defaultLink
	l.rtr.Ahead = c.Recovery.Reach(0)
	connect(t, a, b, l)
	return a, b
}

// A lost packet draws a selective NAK for each packet behind it, and alone is sent again.
func TestOnlyTheLostPacketIsSentAgain(t *testing.T) {
	for _, kind := range []selective.Kind{selective.IRN, selective.RACK} {
		a, b := selectivePair(t, kind)
		post(t, a, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(0, 10*256)}, RemoteAddr: b.mem.Base(), RKey: b.mem.RKey()})
		lost := a.out.Tx[3].Packet.BTH.PSN
		a.out.Tx = append(a.out.Tx[:3], a.out.Tx[4:]...)
		now, naks, again := clock.Time(0), 0, 0
		for range 200 {
			now = now.Add(10 * time.Microsecond)
			a.deliver(now, b)
			b.qp.FlushAcks(now, &b.out)
			for i := range b.out.Tx {
				if p := &b.out.Tx[i].Packet; p.AETH.Syndrome.IsSelective() {
					naks++
					if p.BTH.PSN != lost || wire.Diff(wire.PSN(p.AETH.MSN), lost) <= 0 {
						t.Errorf("%v: NAK with PSN %d and %d, lost is %d", kind, p.BTH.PSN, p.AETH.MSN, lost)
					}
				}
			}
			b.deliver(now, a)
			a.qp.Tick(now, &a.out)
			b.qp.Tick(now, &b.out)
			for i := range a.out.Tx {
				again++
				if psn := a.out.Tx[i].Packet.BTH.PSN; psn != lost {
					t.Errorf("%v: PSN %d is sent again, lost is %d", kind, psn, lost)
				}
			}
		}
		if wc := onlyWC(t, a.scq); wc.Status != verbs.Success || again != 1 || a.counters.RetransPkts != 1 {
			t.Errorf("%v: %v, %d packets sent again, %d counted", kind, wc.Status, again, a.counters.RetransPkts)
		}
		if want := map[selective.Kind]int{selective.IRN: 6, selective.RACK: 1}[kind]; naks != want {
			t.Errorf("%v: %d selective NAKs, want %d", kind, naks, want)
		}
	}
}

// A side that offers nothing gets go-back-N, and so does one that was offered nothing.
func TestGoBackNWithAnotherPeer(t *testing.T) {
	for _, c := range []struct {
		kind  selective.Kind
		ahead int
		want  bool
	}{{selective.RACK, 64, true}, {selective.RACK, 0, false}, {selective.GoBackN, 64, false}} {
		a := newSide(t, "a", 1, 1<<16, Config{QPN: 0x11, Recovery: Recovery{Kind: c.kind}})
		b := newSide(t, "b", 2, 1<<16, Config{QPN: 0x12, Recovery: Recovery{Kind: c.kind}})
		l := defaultLink
		l.rtr.Ahead = c.ahead
		connect(t, a, b, l)
		if got := a.qp.req.sel != nil && b.qp.rsp.held != nil && a.qp.Snapshot().Recovery != ""; got != c.want {
			t.Errorf("%v with a peer that holds %d: selective %v", c.kind, c.ahead, got)
		}
	}
}

// Once buffers have their size, an exchange with selective retransmission allocates no memory, with
// and without losses.
func TestSelectiveExchangeAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a, b := selectivePair(t, selective.RACK)
	wc := make([]verbs.WC, 4)
	now := clock.Time(0)
	r := rand.New(rand.NewPCG(1, 1))
	wr := verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(0, 1<<14)}, RemoteAddr: b.mem.Base(), RKey: b.mem.RKey()}
	step := func() {
		if err := a.qp.PostSend(now, &wr, &a.out); err != nil {
			t.Fatal(err)
		}
		for a.scq.Poll(wc) == 0 {
			now = now.Add(10 * time.Microsecond)
			if n := len(a.out.Tx); n > 0 && r.IntN(4) == 0 {
				a.out.Tx = a.out.Tx[:n-1]
			}
			a.deliver(now, b)
			b.qp.FlushAcks(now, &b.out)
			b.deliver(now, a)
			a.qp.Tick(now, &a.out)
			b.qp.Tick(now, &b.out)
			a.file()
		}
		if wc[0].Status != verbs.Success {
			t.Fatal(wc[0].Status)
		}
	}
	for range 2000 {
		step()
	}
	if n := testing.AllocsPerRun(300, step); n != 0 {
		t.Errorf("%v allocations an exchange", n)
	}
	if a.counters.RetransPkts == 0 {
		t.Error("nothing was lost")
	}
}

// Packets of any kind, PSN and length, true and forged, end in no panic, and what they fill is
// bounded.
func TestForgedPacketsWithSelectiveRetransmission(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 5))
		a, b := selectivePair(t, []selective.Kind{selective.IRN, selective.RACK}[seed%2])
		now := clock.Time(0)
		var p wire.Packet
		for range 300 {
			now = now.Add(time.Duration(r.IntN(100_000)))
			if r.IntN(10) == 0 && a.qp.State() == verbs.StateRTS {
				op := []verbs.WROpcode{verbs.OpWrite, verbs.OpRead, verbs.OpFetchAdd, verbs.OpSend}[r.IntN(4)]
				n := 8
				if op != verbs.OpFetchAdd {
					n = r.IntN(3000)
				}
				wr := verbs.SendWR{Op: op, SGL: []verbs.SGE{a.sge(0, n)}, RemoteAddr: b.mem.Base(), RKey: b.mem.RKey()}
				_ = a.qp.PostSend(now, &wr, &a.out) // fails if the queue is full
			}
			p = wire.Packet{}
			p.BTH.Opcode = wire.Opcode(r.IntN(32))
			p.BTH.AckReq = r.IntN(2) == 0
			p.Payload = a.buf[:r.IntN(600)]
			p.RETH = wire.RETH{VA: b.mem.Base(), RKey: b.mem.RKey(), Length: uint32(r.IntN(3000))}
			p.AETH = wire.AETH{Syndrome: wire.Syndrome(r.IntN(256)), MSN: uint32(a.qp.req.una.Add(r.IntN(80) - 10))}
			s := a
			p.BTH.PSN = s.qp.req.una.Add(r.IntN(80) - 10)
			if r.IntN(2) == 0 {
				s = b
				p.BTH.PSN = s.qp.rsp.ePSN.Add(r.IntN(1200) - 10)
			}
			s.qp.Handle(now, &p, &s.out)
			for _, x := range []*side{a, b} {
				if x.qp.Deadline() <= now {
					x.qp.Tick(now, &x.out)
				}
				x.file()
				x.out.Reset()
				for wc := make([]verbs.WC, 8); x.scq.Poll(wc)+x.rcq.Poll(wc) > 0; {
				}
			}
		}
		if h := b.qp.rsp.held; h != nil && len(h.packets) > 1024 {
			t.Errorf("%d packets can be held", len(h.packets))
		}
	}
}

// The wait that an RNR NAK demands is not cut short by answers to earlier requests that arrive during it,
// and it costs no retry of the ACK timer; when the request itself is acknowledged, the wait is over.
func TestAnswersDoNotEndAnRNRWait(t *testing.T) {
	for _, kind := range []selective.Kind{selective.IRN, selective.RACK} {
		a, b := selectivePair(t, kind)
		now := clock.Time(10 * time.Microsecond)
		for _, wr := range []verbs.SendWR{
			{Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(0, 64)}, RemoteAddr: b.mem.Base(), RKey: b.mem.RKey()},
			{Op: verbs.OpSend, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(64, 64)}},
		} {
			post(t, a, wr)
		}
		a.deliver(now, b)
		b.qp.FlushAcks(now, &b.out)
		late := b.out.Tx[0] // the response of the READ comes behind the RNR NAK
		if b.out.Tx = b.out.Tx[1:]; len(b.out.Tx) != 1 || !b.out.Tx[0].Packet.AETH.Syndrome.IsRNR() {
			t.Fatalf("%v: the peer answers %+v", kind, b.out.Tx)
		}
		ends := now.Add(RNRDelay(b.out.Tx[0].Packet.AETH.Syndrome.Value()))
		b.deliver(now, a)
		left := a.qp.Snapshot().Retries
		b.out.Tx = append(b.out.Tx, late)
		b.deliver(now.Add(time.Microsecond), a)
		a.file()
		if wc := onlyWC(t, a.scq); wc.Status != verbs.Success {
			t.Fatalf("%v: the READ: %v", kind, wc.Status)
		}
		for ; now < ends; now = now.Add(5 * time.Microsecond) {
			if a.qp.Tick(now, &a.out); len(a.out.Tx) > 0 {
				t.Fatalf("%v: sent %v before the end of the wait", kind, ends.Sub(now))
			}
		}
		if n := a.qp.Snapshot().Retries; n != left {
			t.Errorf("%v: %d retries are left, %d before the wait", kind, n, left)
		}
		if a.qp.Tick(ends, &a.out); len(a.out.Tx) != 1 {
			t.Fatalf("%v: %d packets at the end of the wait, want 1", kind, len(a.out.Tx))
		}
	}
}
