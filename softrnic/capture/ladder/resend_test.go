package ladder

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Every reason for which a packet is sent again: a NAK, with and without the first copy in the capture, the packets behind
// it, an answer that comes too early, and no answer at all, with the loss that has led to it.
func TestWhy(t *testing.T) {
	type sent struct {
		request  bool
		op       wire.Opcode
		psn      wire.PSN
		syn      wire.Syndrome
		comments []string
	}
	send := func(psn wire.PSN, c ...string) sent { return sent{true, wire.RCSendOnly, psn, 0, c} }
	answer := func(psn wire.PSN, syn wire.Syndrome, c ...string) sent {
		return sent{false, wire.RCAck, psn, syn, c}
	}
	const ack, nak, lost = wire.AckNoCredits, wire.NakPSNSequence, "fault f1 (loss): dropped"
	for name, c := range map[string]struct {
		sent []sent
		want []Resend // of the last packets
	}{
		"a NAK": {
			[]sent{send(5), send(6, lost), send(7), answer(6, nak), send(6), send(7)},
			[]Resend{{First: 2, Why: Asked, Cause: 4, Wait: 3000, Gone: 2}, {First: 3, Why: Behind, Cause: 5, Wait: 3000}},
		},
		"a NAK, the first copy is missing": {
			[]sent{send(5), send(7), answer(6, nak), send(6), send(7)},
			[]Resend{{Why: Asked, Cause: 3}, {First: 2, Why: Behind, Cause: 4, Wait: 3000}},
		},
		"a NAK that is lost": {
			[]sent{send(5), send(6, lost), send(7), answer(6, nak, lost), send(6)},
			[]Resend{{First: 2, Why: Unanswered, Wait: 3000, Gone: 2}},
		},
		"no answer, for an unknown reason": {
			[]sent{send(5), send(5)},
			[]Resend{{First: 1, Why: Unanswered, Wait: 1000}},
		},
		"a lost ACK": {
			[]sent{send(5), send(6), answer(6, ack, lost), send(5), send(6)},
			[]Resend{{First: 1, Why: Unanswered, Wait: 3000, Gone: 3, GoneAnswer: true}, {First: 2, Why: Behind, Cause: 4, Wait: 3000, Gone: 3, GoneAnswer: true}},
		},
		"a pause in what is sent again": {
			[]sent{send(5), send(6, lost), send(7), send(8), answer(6, nak), send(6), answer(6, ack), send(7), answer(7, ack), send(8)},
			[]Resend{{First: 4, Why: Behind, Cause: 6, Wait: 6000}},
		},
		"an answer came too early": {
			[]sent{{true, wire.RCFetchAdd, 5, 0, nil}, send(6), answer(6, ack), {true, wire.RCFetchAdd, 5, 0, nil}},
			[]Resend{{First: 1, Why: Overtaken, Cause: 3, Wait: 3000}},
		},
		"an RNR NAK": {
			[]sent{send(5), answer(5, wire.RNRNak|3), send(5)},
			[]Resend{{First: 1, Why: Asked, Cause: 2, Wait: 2000}},
		},
	} {
		s := &story{m: New()}
		for _, p := range c.sent {
			s.add(t, "", p.request, p.op, p.psn, p.syn, p.comments...)
		}
		rows := s.m.Rows()
		for i, want := range c.want {
			if got := rows[len(rows)-len(c.want)+i].Resend; got != want {
				t.Errorf("%s: packet %d of the last: %+v, want %+v", name, i, got, want)
			}
		}
	}
}

// The switch has made a WRITE of an atomic and an ATOMIC_ACK of its ACK, on a connection of its own.
func TestPassage(t *testing.T) {
	m := New()
	add := func(link string, request bool, qpn wire.QPN, psn wire.PSN, op wire.Opcode, comments ...string) {
		addOn(t, m, link, request, qpn, psn, op, comments...)
	}
	add("cn0 up", true, 0x22, 7, wire.RCSendOnly)
	add("ms0 down", true, 0x22, 7, wire.RCSendOnly)
	add("cn0 up", true, 0x22, 8, wire.RCFetchAdd, "FAA→WRITE conn 2 psn 8→100 value 1, was 0, to ms0")
	add("ms0 down", true, 0x33, 100, wire.RCWriteOnly, "FAA→WRITE conn 2 psn 8→100 value 1, was 0, from cn0")
	add("ms0 up", false, 0x44, 100, wire.RCAck, "ACK→ATOMIC_ACK conn 2 psn 100→8 msn 3, was 0")
	add("cn0 down", false, 0x11, 8, wire.RCAtomicAck, "ACK→ATOMIC_ACK conn 2 psn 100→8 msn 3, was 0, from ms0")
	rows := m.Rows()
	for i, want := range []struct {
		passed int
		note   string
	}{
		1: {1, ""}, 3: {3, "was #3: opcode RC_FETCH_ADD → RC_WRITE_ONLY, qp 0x22 → 0x33, psn 0x8 → 0x64"},
		5: {5, "was #5: opcode RC_ACK → RC_ATOMIC_ACK, qp 0x44 → 0x11, psn 0x64 → 0x8"},
	} {
		if r := &rows[i]; r.Passed != want.passed || r.Note() != want.note {
			t.Errorf("packet %d: was #%d, note %q", r.Number, r.Passed, r.Note())
		}
	}
}

// A message that is captured on both sides of the switch is two bursts, and one that is sent again another two.
func TestBursts(t *testing.T) {
	m := New()
	for range 2 {
		for psn := wire.PSN(0); psn < 10; psn++ {
			op := wire.RCWriteMiddle
			switch psn {
			case 0:
				op = wire.RCWriteFirst
			case 9:
				op = wire.RCWriteLast
			}
			addOn(t, m, "cn0 up", true, 0x22, psn, op)
			addOn(t, m, "ms0 down", true, 0x22, psn, op)
		}
	}
	rows := m.Rows()
	if len(rows) != 12 {
		t.Fatalf("%d rows, want 12", len(rows))
	}
	for _, i := range []int{2, 3, 8, 9} {
		if rows[i].Packets != 8 {
			t.Errorf("row %d has %d packets, want 8", i, rows[i].Packets)
		}
	}
}
