package transport

import (
	"bytes"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A queue pair that enters the error state with a delayed ACK sends the ACK first, whether an
// application causes the error or a NAK for its own request in the same receive batch (IBTA
// 9.9.3/fatal).
func TestLastAcknowledgement(t *testing.T) {
	for name, end := range map[string]func(b *side) error{
		"application": func(b *side) error { return b.qp.ToError(0, &b.out) },
		"own request": func(b *side) error {
			wr := verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte("x"), RemoteAddr: 1, RKey: 2}
			if err := b.qp.PostSend(0, &wr, &b.out); err != nil {
				return err
			}
			b.out.Tx = b.out.Tx[:0]
			b.qp.Handle(0, &wire.Packet{
				BTH: wire.BTH{Opcode: wire.RCAck, PSN: defaultLink.psnB}, AETH: wire.AETH{Syndrome: wire.NakRemoteAccess},
			}, &b.out)
			return nil
		},
	} {
		a := newSide(t, "a", 1, 1<<12, Config{QPN: 0x11})
		b := newSide(t, "b", 2, 1<<12, Config{QPN: 0x12, CoalesceAcks: true})
		connect(t, a, b, defaultLink)
		post(t, a, writeTo(b))
		a.deliver(0, b)
		if len(b.out.Tx) != 0 {
			t.Fatalf("%s: the ACK was not held back", name)
		}
		if err := end(b); err != nil {
			t.Fatal(err)
		}
		if b.qp.State() != verbs.StateError {
			t.Fatalf("%s: the state is %v", name, b.qp.State())
		}
		if len(b.out.Tx) != 1 || b.out.Tx[0].Packet.BTH.Opcode != wire.RCAck || !b.out.Tx[0].Packet.AETH.Syndrome.IsAck() {
			t.Errorf("%s: %d packets leave, want the ACK", name, len(b.out.Tx))
		}
		b.deliver(0, a)
		a.file()
		if wc := onlyWC(t, a.scq); wc.Status != verbs.Success {
			t.Errorf("%s: what was executed completes with %v", name, wc.Status)
		}
	}
}

// The NAK that ends the connection is sent, however many responses the responder owes.
func TestFatalNakBehindAFullList(t *testing.T) {
	for depth := 1; depth < 20; depth++ {
		l := defaultLink
		l.rtr.MaxDestRdAtomic = depth
		a := newSide(t, "a", 1, 1<<12, Config{QPN: 0x11})
		b := newSide(t, "b", 2, 1<<12, Config{QPN: 0x12})
		connect(t, a, b, l)
		n := 0
		for b.qp.rsp.answers.owe(owedAtomic, defaultLink.psnA.Add(-1000+n), 0) != nil {
			n++
		}
		wr := verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{a.sge(0, 8)}, RemoteAddr: b.mem.Base(), RKey: b.mem.RKey() ^ 1}
		post(t, a, wr)
		a.deliver(0, b)
		last := &b.out.Tx[len(b.out.Tx)-1].Packet
		if len(b.out.Tx) != n+1 || last.BTH.Opcode != wire.RCAck || last.AETH.Syndrome != wire.NakRemoteAccess || b.qp.State() != verbs.StateError {
			t.Errorf("depth %d: %d answers to %d, the last one %v, in %v", depth, len(b.out.Tx), n, last, b.qp.State())
		}
	}
}

// refusedBehindARead returns a pair whose responder b has refused a WRITE behind a READ of n
// packets, of which it has sent the first 8.
func refusedBehindARead(t *testing.T, n int) (a, b *side) {
	t.Helper()
	a = newSide(t, "a", 1, n*256, Config{QPN: 0x11})
	b = newSide(t, "b", 2, n*256, Config{QPN: 0x12, Window: 4})
	connect(t, a, b, defaultLink)
	pattern(b.buf, 1)
	post(t, a, verbs.SendWR{ID: 1, Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(0, n*256)}, RemoteAddr: b.mem.Base(), RKey: b.mem.RKey()})
	post(t, a, verbs.SendWR{ID: 2, Op: verbs.OpWrite, Flags: verbs.Signalled | verbs.Inline, Data: []byte("x"), RemoteAddr: b.mem.Base(), RKey: b.mem.RKey() ^ 1})
	a.deliver(0, b)
	return a, b
}

// A fatal NAK is sent after the READ responses that come before it, over as many steps as they
// take; the queue pair fails when the NAK has been sent (IBTA 9.7.5/in-order).
func TestFatalNakBehindAReadStream(t *testing.T) {
	a, b := refusedBehindARead(t, 100)
	if b.qp.State() != verbs.StateRTS {
		t.Fatalf("the state is %v before the NAK has left", b.qp.State())
	}
	settle(t, 0, a, b)
	var wc [3]verbs.WC
	if n := a.scq.Poll(wc[:]); n != 2 || wc[0].Status != verbs.Success || wc[1].Status != verbs.RemAccessErr {
		t.Fatalf("completions %+v", wc[:n])
	}
	if !bytes.Equal(a.buf, b.buf) || b.qp.State() != verbs.StateError {
		t.Errorf("the READ is not whole, or the state is %v", b.qp.State())
	}
}

// When something else ends the queue pair before that, the rest of the READ and the NAK leave at
// once; and if the rest is longer than a step may send, a fatal NAK for the READ. The peer never
// has to use up its retries (IBTA 9.9.3/fatal).
func TestFatalNakWhenTheStreamIsCut(t *testing.T) {
	for _, tc := range []struct {
		packets     int
		torn, gone  bool
		read, write verbs.Status
	}{
		{packets: 9, read: verbs.Success, write: verbs.RemAccessErr},
		{packets: 9, torn: true, read: verbs.Success, write: verbs.RemAccessErr},
		{packets: 12, read: verbs.Success, write: verbs.RemAccessErr},
		{packets: 13, read: verbs.RemOpErr, write: verbs.WRFlushErr},
		{packets: 12, gone: true, read: verbs.RemOpErr, write: verbs.WRFlushErr},
	} {
		a, b := refusedBehindARead(t, tc.packets)
		if tc.torn {
			b.env.Mem.SetTear(mem.SeededTear(1, 1, time.Millisecond))
		}
		if tc.gone {
			if err := b.env.Mem.Dereg(b.mem); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.qp.ToError(0, &b.out); err != nil {
			t.Fatal(err)
		}
		if n := len(b.out.Tx); n > 3*4+1 {
			t.Errorf("%+v: %d packets in three steps", tc, n)
		}
		b.deliver(0, a)
		a.file()
		var wc [3]verbs.WC
		if n := a.scq.Poll(wc[:]); n != 2 || wc[0].Status != tc.read || wc[1].Status != tc.write {
			t.Errorf("%+v: completions %+v", tc, wc[:n])
		}
		if tc.read == verbs.Success && !bytes.Equal(a.buf, b.buf) {
			t.Errorf("%+v: the READ moved other bytes", tc)
		}
	}
}

// A syndrome with the reserved bit 7 is neither an ACK nor a NAK: a bad response (IBTA
// 9.7.5.1.2/reserved).
func TestReservedBitOfASyndrome(t *testing.T) {
	for s := 0x80; s < 0x100; s++ {
		a, b := newPair(t)
		post(t, a, writeTo(b))
		a.qp.Handle(0, &wire.Packet{
			BTH: wire.BTH{Opcode: wire.RCAck, PSN: defaultLink.psnA}, AETH: wire.AETH{Syndrome: wire.Syndrome(s)},
		}, &a.out)
		a.file()
		if wc := onlyWC(t, a.scq); wc.Status != verbs.BadRespErr {
			t.Errorf("%#x: %v", s, wc.Status)
		}
	}
}
