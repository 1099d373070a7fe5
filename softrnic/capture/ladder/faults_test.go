package ladder

import (
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A new connection with the numbers of an old one repeats PSNs, but no packet.
func TestReused(t *testing.T) {
	s := &story{m: New()}
	for range 2 {
		for psn := wire.PSN(5); psn < 8; psn++ {
			s.add(t, "", true, wire.RCSendOnly, psn, 0)
			s.msn = uint32(psn) - 4
			s.add(t, "", false, wire.RCAck, psn, wire.AckNoCredits)
		}
	}
	for _, r := range s.m.Rows() {
		if r.Resend.Why != Once {
			t.Errorf("packet %d is sent again, as packet %d", r.Number, r.Resend.First)
		}
	}
}

// Answers between two hosts find their requests, and each time the same ones, though the newest PSN of all
// queue pairs is the same.
func TestManyQueuePairs(t *testing.T) {
	const pairs, last = 20, wire.PSN(100)
	m := New()
	for q := range pairs {
		for back := q; back >= 0; back-- {
			addPair(t, m, true, wire.QPN(0x1000+q), last.Add(-back), wire.RCSendOnly)
		}
	}
	for q := range pairs {
		addPair(t, m, false, wire.QPN(0x2000+q), last, wire.RCAck)
	}
	rows := m.Rows()
	for q, r := range rows[len(rows)-pairs:] {
		if int(r.PSN) != q {
			t.Errorf("the answer to queue pair %d has relative PSN %d", q, r.PSN)
		}
	}
}

func addPair(t testing.TB, m *Model, request bool, qpn wire.QPN, psn wire.PSN, op wire.Opcode) {
	t.Helper()
	addOn(t, m, "", request, qpn, psn, op)
}

// addOn adds a packet that was captured on link.
func addOn(t testing.TB, m *Model, link string, request bool, qpn wire.QPN, psn wire.PSN, op wire.Opcode, comments ...string) {
	t.Helper()
	r := &dump.Record{Verdict: dump.OK}
	r.Name, r.Comments = link, comments
	src, dst := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	if !request {
		src, dst = dst, src
	}
	r.Frame.IPv4.Src, r.Frame.IPv4.Dst = src.As4(), dst.As4()
	r.Frame.BTH = wire.BTH{Opcode: op, DestQP: qpn, PSN: psn}
	r.Frame.AETH.Syndrome = wire.AckNoCredits
	if err := m.Add(r); err != nil {
		t.Fatal(err)
	}
}

// A ladder has a bound: packets behind it are counted, and nothing else is kept of them.
func TestBound(t *testing.T) {
	m := New()
	for i := range MaxPackets + 10 {
		addPair(t, m, true, 0x22, wire.PSN(0).Add(i), wire.RCWriteOnly)
	}
	if got := len(m.Rows()); got != MaxPackets || m.Left() != 10 {
		t.Errorf("%d rows, %d left out", got, m.Left())
	}
}

// BenchmarkLadder adds 100000 packets of 1000 queue pairs and makes their rows.
func BenchmarkLadder(b *testing.B) {
	for b.Loop() {
		m := New()
		for i := range 50000 {
			q := wire.QPN(i % 1000)
			addPair(b, m, true, 0x1000+q, wire.PSN(i/1000).Add(int(q)*13), wire.RCWriteOnly)
			addPair(b, m, false, 0x5000+q, wire.PSN(i/1000).Add(int(q)*13), wire.RCAck)
		}
		if len(m.Rows()) != 100000 {
			b.Fatal(len(m.Rows()))
		}
	}
}
