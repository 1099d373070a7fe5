package packettrace

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/telemetry"
)

// roce returns the first bytes of a RoCEv2 packet, with an IPv4 header or an IPv6 header and a tag.
func roce(v6 bool, op wire.Opcode, qp wire.QPN, psn wire.PSN) []byte {
	b := make([]byte, 12, HeadLen)
	if v6 {
		b = append(b, 0x81, 0, 0, 5, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 100, 17, 64)
		b = append(append(b, netip.MustParseAddr("fd00::1").AsSlice()...), netip.MustParseAddr("fd00::2").AsSlice()...)
	} else {
		b = append(b, 8, 0, 0x45, 0, 0, 100, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
	}
	b = append(b, 0xc0, 0, 0x12, 0xb7, 0, 80, 0, 0)
	h := wire.BTH{Opcode: op, DestQP: qp, PSN: psn, PKey: 0xffff}
	return h.AppendTo(b)
}

// tcp returns the headers of a TCP segment with n bytes of data.
func tcp(seq uint32, n int, flags byte) []byte {
	b := make([]byte, 12, HeadLen)
	b = append(b, 8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
	binary.BigEndian.PutUint16(b[16:], uint16(40+n))
	b = binary.BigEndian.AppendUint32(append(b, 0x30, 0x39, 0, 80), seq)
	return append(b, 0, 0, 0, 0, 5<<4, flags, 0, 0, 0, 0, 0, 0)
}

// traceOf makes a trace of single packets of 100 bytes, a microsecond apart.
func traceOf(heads ...[]byte) *Trace {
	var b []byte
	for i, h := range heads {
		b = (&Record{Number: uint64(i + 1), Epoch: 3, Time: clock.Time(1000 * i), Length: 100, Packets: 1, Taken: 1, Head: h}).AppendTo(b)
	}
	t := New(3)
	t.Add(b)
	return t
}

// The PSNs of each queue pair have an order of their own. A PSN behind a later one is late, one that was
// there is there again; acknowledgements do not count.
func TestOrderOfPSNs(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		p := func(op wire.Opcode, qp wire.QPN, psn ...wire.PSN) (list [][]byte) {
			for _, n := range psn {
				list = append(list, roce(v6, op, qp, n))
			}
			return list
		}
		r := traceOf(slices.Concat(
			p(wire.RCWriteOnly, 5, 0xfffffe, 0xffffff, 0, 2, 1, 3, 2, 3), // 1 is late; 2 and 3 come again
			p(wire.RCWriteOnly, 6, 9, 10, 11),
			p(wire.RCAck, 5, 7, 7, 6),
			p(wire.CNP, 5, 0, 0),
		)...).Report(telemetry.ByFlow, 1)
		if len(r.Flows) != 3 || r.Records != 16 || r.Packets != 16 || r.Bytes != 1600 || r.Missing != 0 {
			t.Fatalf("%+v", r)
		}
		five := r.Flows[0]
		if five.QP != 5 || five.Packets != 8 || five.Numbered != 8 || five.Late != 1 || five.Again != 2 || five.Share != 0.5 {
			t.Errorf("%+v", five)
		}
		if f := r.Flows[1]; f.QP != 0 || f.Packets != 5 || f.Numbered != 0 || f.Late != 0 || f.Again != 0 {
			t.Errorf("acknowledgements: %+v", f)
		}
		if f := r.Flows[2]; f.QP != 6 || f.Late+f.Again != 0 || f.First != 8000 || f.Last != 10000 {
			t.Errorf("%+v", f)
		}
		one := traceOf(slices.Concat(p(wire.RCWriteOnly, 5, 1, 2), p(wire.RCWriteOnly, 6, 1, 2))...).Report(telemetry.BySource, 1)
		if len(one.Flows) != 1 || one.Flows[0].Late+one.Flows[0].Again != 0 || one.Flows[0].Numbered != 4 {
			t.Errorf("two queue pairs of one source: %+v", one.Flows)
		}
	}
}

// The packets of a super-frame have consecutive PSNs: one that is sent again, with more packets behind, is
// there again as far as it was there.
func TestOrderOfSuperFrames(t *testing.T) {
	tr := New(3)
	rec := func(n uint64, psn wire.PSN, packets uint16) []byte {
		return (&Record{Number: n, Epoch: 3, Length: 1000 * uint32(packets), Packets: packets, Taken: packets, Head: roce(false, wire.RCWriteMiddle, 5, psn)}).AppendTo(nil)
	}
	tr.Add(slices.Concat(rec(1, 0xfffffe, 4), rec(2, 6, 2), rec(3, 0, 7))) // 2 to 5 were lost before
	if f := tr.Report(telemetry.ByFlow, 1).Flows[0]; f.Packets != 13 || f.Numbered != 13 || f.Again != 3 || f.Late != 4 {
		t.Errorf("%+v", f)
	}
}

// TCP segments take as many numbers as they have bytes; SYN takes one, and an acknowledgement none.
func TestOrderOfTCP(t *testing.T) {
	const ack, syn = 0x10, 0x02
	start := uint32(0xffffff00)
	r := traceOf(tcp(start, 0, syn), tcp(start+1, 0, ack), tcp(start+1, 100, ack), tcp(start+301, 100, ack), tcp(start+101, 200, ack), tcp(start+401, 0, ack), tcp(start+101, 200, ack)).Report(telemetry.ByFlow, 1)
	if f := r.Flows[0]; len(r.Flows) != 1 || f.Packets != 7 || f.Numbered != 5 || f.Late != 1 || f.Again != 1 {
		t.Errorf("%+v", r.Flows)
	}
}

// A record of a sample stands for several packets, and one of a super-frame for those that were taken.
func TestSampledTrace(t *testing.T) {
	b := (&Record{Number: 1, Epoch: 3, Length: 44000, Packets: 44, Taken: 5, Head: tcp(1, 40000, 0)}).AppendTo(nil)
	tr := New(3)
	tr.Add(b)
	if r := tr.Report(telemetry.ByProtocol, 8); r.Packets != 40 || r.Bytes != 40000 || r.Every != 8 || r.Flows[0].Key.Proto != 6 {
		t.Errorf("%+v", r)
	}
}

// Records are in the order of their numbers, whatever their cells are; numbers without a record are
// missing, a cell of an earlier lap does not count, and records of other epochs are counted apart.
func TestRecordsOfARing(t *testing.T) {
	const cells = 8
	ring := make([]byte, cells*Size)
	put := func(number uint64, epoch uint32) {
		b := (&Record{Number: number, Epoch: epoch, Length: 60, Packets: 1, Taken: 1, Head: make([]byte, 60)}).AppendTo(nil)
		copy(ring[(number-1)%cells*Size:], b)
	}
	for n := range uint64(8) {
		put(n+1, 7)
	}
	for _, n := range []uint64{3, 1, 2, 4, 9, 12} { // 5 to 8, 10 and 11 were lost
		put(n, 3)
	}
	tr := New(3)
	tr.Add(slices.Clone(ring))
	var got []uint64
	for _, r := range tr.Records() {
		got = append(got, r.Number)
	}
	// 2 and 3 are where 10 and 11 belong.
	if want := []uint64{9, 12}; !slices.Equal(got, want) || tr.Missing() != 2 || tr.Others() != 4 {
		t.Errorf("%v, want %v; %d missing, %d of others", got, want, tr.Missing(), tr.Others())
	}
}

// A second copy adds its records to those of the first.
func TestTwoCopies(t *testing.T) {
	rec := func(n uint64) []byte {
		return (&Record{Number: n, Epoch: 3, Length: 60, Packets: 1, Taken: 1, Head: make([]byte, 60)}).AppendTo(nil)
	}
	tr := New(3)
	tr.Add(slices.Concat(rec(1), rec(2)))
	tr.Add(slices.Concat(rec(5), rec(2)))
	if tr.Missing() != 2 || len(tr.Records()) != 3 {
		t.Errorf("%d missing of %v", tr.Missing(), tr.Records())
	}
}

// No bytes make the analysis panic: random heads with right checksums.
func TestAnyHeads(t *testing.T) {
	d := rand.New(rand.NewPCG(1, 2))
	for range 4000 {
		head := [][]byte{roce(d.IntN(2) == 0, wire.Opcode(d.Uint32()), 1, 2), tcp(d.Uint32(), d.IntN(2000), byte(d.Uint32()))}[d.IntN(2)]
		for range d.IntN(4) {
			head[12+d.IntN(len(head)-12)] = byte(d.Uint32())
		}
		head = head[:d.IntN(len(head)+1)]
		b := (&Record{Number: 1, Epoch: 3, Length: uint32(len(head)), Packets: uint16(1 + d.IntN(3)), Taken: 1, Head: head}).AppendTo(nil)
		tr := New(3)
		tr.Add(b)
		for by := range telemetry.Names {
			tr.Report(telemetry.By(by), 1)
		}
	}
}
