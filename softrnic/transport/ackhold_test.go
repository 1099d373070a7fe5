package transport

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// With Config.Acks 1, each WRITE of a batch has an ACK of its own; with 4, four of them have one, and the
// last ones wait for AckHold; with 0, the batch has one.
func TestAcksOfABatch(t *testing.T) {
	const n = 10
	for acks, want := range map[int][2]int{0: {0, 1}, 1: {n, n}, 4: {2, 3}, 16: {0, 1}} {
		a, b := newSide(t, "a", 1, 1<<12, Config{QPN: 0x11}), newSide(t, "b", 2, 1<<12, Config{QPN: 0x12, CoalesceAcks: true, Acks: acks})
		connect(t, a, b, defaultLink)
		for i := range n {
			post(t, a, verbs.SendWR{ID: uint64(i), Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(0, 8)}, RemoteAddr: b.mem.Base(), RKey: b.mem.RKey()})
		}
		a.file()
		for i := range a.out.Tx {
			b.qp.Handle(0, &a.out.Tx[i].Packet, &b.out)
		}
		a.out.Reset()
		b.qp.FlushAcks(0, &b.out)
		if acks > 1 && (len(b.out.Tx) != want[0] || b.qp.Deadline() != clock.Time(0).Add(AckHold)) {
			t.Errorf("acks %d: %d ACKs at the end of the batch, want %d; the last one is due at %v", acks, len(b.out.Tx), want[0], b.qp.Deadline())
		}
		b.qp.Tick(clock.Time(0).Add(AckHold), &b.out)
		if sent := b.deliver(0, a); sent != want[1] {
			t.Errorf("acks %d: %d ACKs, want %d", acks, sent, want[1])
		}
		a.file()
		var wcs [2 * n]verbs.WC
		if k := a.scq.Poll(wcs[:]); k != n {
			t.Errorf("acks %d: %d WRITEs completed, want %d", acks, k, n)
		}
	}
}
