package ladder

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Answers that come once more because a request was sent again are marked and linked with the loss, on each link and for each
// kind of answer; others are not.
func TestAnswersAgain(t *testing.T) {
	type sent struct {
		link string
		op   wire.Opcode
		psn  wire.PSN
		syn  wire.Syndrome
		lost bool
	}
	const ack = wire.AckNoCredits
	read := func(psn wire.PSN) sent { return sent{op: wire.RCReadRequest, psn: psn} }
	response := func(op wire.Opcode, psn wire.PSN) sent { return sent{op: op, psn: psn, syn: ack} }
	lost := func(s sent) sent { s.lost = true; return s }
	on := func(link string, s sent) sent { s.link = link; return s }
	for name, c := range map[string]struct {
		sent []sent
		want map[int]Resend // by number; others are sent once, or are requests
	}{
		"a READ response, and those behind it": {
			[]sent{
				read(5), response(wire.RCReadResponseFirst, 5), lost(response(wire.RCReadResponseMiddle, 6)), response(wire.RCReadResponseLast, 7),
				read(5), response(wire.RCReadResponseFirst, 5), response(wire.RCReadResponseMiddle, 6), response(wire.RCReadResponseLast, 7),
			},
			map[int]Resend{6: {First: 2, Why: Repeated, Cause: 5}, 7: {First: 3, Why: Repeated, Cause: 5, Gone: 3}, 8: {First: 4, Why: Repeated, Cause: 5}},
		},
		"a READ that is sent again from the lost response on, which is another part of the answer then": {
			[]sent{
				read(5), response(wire.RCReadResponseFirst, 5), lost(response(wire.RCReadResponseMiddle, 6)), response(wire.RCReadResponseLast, 7),
				read(6), response(wire.RCReadResponseFirst, 6), response(wire.RCReadResponseLast, 7),
			},
			map[int]Resend{6: {First: 3, Why: Repeated, Cause: 5, Gone: 3}, 7: {First: 4, Why: Repeated, Cause: 5}},
		},
		"the answers to several READs, each to its own": {
			[]sent{
				read(5), read(8), lost(response(wire.RCReadResponseFirst, 5)), response(wire.RCReadResponseMiddle, 6), response(wire.RCReadResponseLast, 7),
				response(wire.RCReadResponseFirst, 8), read(5), read(8), response(wire.RCReadResponseFirst, 5), response(wire.RCReadResponseMiddle, 6),
				response(wire.RCReadResponseLast, 7), response(wire.RCReadResponseFirst, 8),
			},
			map[int]Resend{
				9: {First: 3, Why: Repeated, Cause: 7, Gone: 3}, 10: {First: 4, Why: Repeated, Cause: 7}, 11: {First: 5, Why: Repeated, Cause: 7},
				12: {First: 6, Why: Repeated, Cause: 8},
			},
		},
		"a response that was lost before this link": {
			[]sent{
				on("ms0 down", read(5)), on("ms0 up", lost(response(wire.RCReadResponseOnly, 5))), on("ms0 down", read(5)),
				on("ms0 up", response(wire.RCReadResponseOnly, 5)), on("cn0 down", response(wire.RCReadResponseOnly, 5)),
			},
			map[int]Resend{4: {First: 2, Why: Repeated, Cause: 3, Gone: 2}, 5: {First: 2, Why: Repeated, Cause: 3, Gone: 2}},
		},
		"the answer of an atomic": {
			[]sent{
				{op: wire.RCFetchAdd, psn: 5}, lost(response(wire.RCAtomicAck, 5)), {op: wire.RCFetchAdd, psn: 5}, response(wire.RCAtomicAck, 5),
			},
			map[int]Resend{4: {First: 2, Why: Repeated, Cause: 3, Gone: 2}},
		},
		"an ACK for a duplicate": {
			[]sent{
				{op: wire.RCSendOnly, psn: 5}, lost(response(wire.RCAck, 5)), {op: wire.RCSendOnly, psn: 5}, response(wire.RCAck, 5),
			},
			map[int]Resend{4: {First: 2, Why: Repeated, Cause: 3, Gone: 2}},
		},
		"an ACK for a duplicate of what was acknowledged": {
			[]sent{{op: wire.RCSendOnly, psn: 5}, response(wire.RCAck, 5), {op: wire.RCSendOnly, psn: 5}, response(wire.RCAck, 5)},
			map[int]Resend{4: {First: 2, Why: Repeated, Cause: 3}},
		},
		"the first ACK of a request that was lost": {
			[]sent{
				{op: wire.RCSendOnly, psn: 5}, response(wire.RCAck, 5), lost(sent{op: wire.RCSendOnly, psn: 6}), {op: wire.RCSendOnly, psn: 6}, response(wire.RCAck, 6),
			},
			nil,
		},
		"an ACK that a responder repeats by itself": {
			[]sent{{op: wire.RCSendOnly, psn: 5}, response(wire.RCAck, 5), response(wire.RCAck, 5)}, nil,
		},
		"a NAK that comes again": {
			[]sent{
				{op: wire.RCSendOnly, psn: 5}, {op: wire.RCAck, psn: 5, syn: wire.RNRNak | 3}, {op: wire.RCSendOnly, psn: 5}, {op: wire.RCAck, psn: 5, syn: wire.RNRNak | 3},
			},
			nil,
		},
	} {
		for _, service := range []wire.Opcode{wire.ServiceRC, wire.ServiceXRC} {
			s := &story{m: New(), length: 3 * 4096}
			for _, p := range c.sent {
				var comments []string
				if p.lost {
					comments = []string{"fault f1 (loss): dropped"}
				}
				s.add(t, p.link, !p.op.Is(wire.OpResponse), p.op|service, p.psn, p.syn, comments...)
			}
			for i := range s.m.book.Packets {
				p := &s.m.book.Packets[i]
				if !p.IsAnswer() {
					continue
				}
				if got := s.m.Rows()[s.m.at[p.Number]].Resend; got != c.want[p.Number] {
					t.Errorf("%s, service %#x: packet %d: %+v, want %+v", name, uint8(service), p.Number, got, c.want[p.Number])
				}
			}
		}
	}
}

// A request of XRC is drawn with the number of the shared receive queue that it names.
func TestSharedReceiveQueue(t *testing.T) {
	s := &story{m: New()}
	s.add(t, "", true, wire.RCSendOnly|wire.ServiceXRC, 5, 0)
	s.add(t, "", false, wire.RCAck|wire.ServiceXRC, 5, wire.AckNoCredits)
	for i, want := range []string{"+0 XRC_SEND_ONLY qp=0x22 srq=0x0", "+0 XRC_ACK qp=0x11"} {
		if got := s.m.Rows()[i].Title(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
