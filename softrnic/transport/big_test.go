package transport

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The largest message at the smallest path MTU takes exactly half of the PSN space: 2^23 PSNs. It
// is acknowledged in bursts, a window at a time, and no further PSN can be in flight with it (IBTA
// 9.7/size, 9.7.1/window).
func TestLargestRead(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("needs 4 GiB of memory; the race detector would need much more")
	}
	a := newSide(t, "a", 1, MaxMessage, Config{QPN: 0x11})
	b := newSide(t, "b", 2, MaxMessage, Config{QPN: 0x12})
	l := defaultLink
	l.psnA = 0xfffff0
	connect(t, a, b, l)
	post(t, a, verbs.SendWR{ID: 1, Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(0, MaxMessage)}, RemoteAddr: b.mem.Base(), RKey: b.mem.RKey()})
	post(t, a, writeTo(b))
	if len(a.out.Tx) != 1 {
		t.Fatalf("%d packets, want the READ request alone", len(a.out.Tx))
	}
	if got := a.qp.Query().SendPSN; got != l.psnA.Add(1<<23) {
		t.Errorf("next PSN %06x", uint32(got))
	}
	a.deliver(0, b)
	if got := b.qp.Query().RecvPSN; got != l.psnA.Add(1<<23) {
		t.Errorf("expected PSN %06x", uint32(got))
	}
	psn := l.psnA
	for burst := range 3 {
		if len(b.out.Tx) != 128 {
			t.Fatalf("burst %d: %d packets, want 128", burst, len(b.out.Tx))
		}
		for i := range b.out.Tx {
			p := &b.out.Tx[i].Packet
			if p.BTH.PSN != psn || len(p.Payload) != 256 || p.BTH.Opcode == wire.RCReadResponseLast {
				t.Fatalf("burst %d packet %d: %+v", burst, i, p.BTH)
			}
			psn = psn.Next()
		}
		b.deliver(0, a)
		if b.qp.Deadline() > 0 {
			t.Fatal("the rest is not due")
		}
		b.qp.Tick(0, &b.out)
	}
	if got := a.qp.req.una; got != psn {
		t.Errorf("una %06x, want %06x", uint32(got), uint32(psn))
	}
	// A duplicate of the last packet: its PSN is as far behind as possible.
	b.out.Reset()
	dup := wire.Packet{BTH: wire.BTH{Opcode: wire.RCReadRequest, PSN: l.psnA}, RETH: wire.RETH{VA: b.mem.Base(), RKey: b.mem.RKey(), Length: MaxMessage}}
	b.qp.Handle(0, &dup, &b.out)
	if len(b.out.Tx) == 0 || b.out.Tx[0].Packet.BTH.PSN != l.psnA {
		t.Error("the duplicate of the first packet is not answered from the start")
	}
}
