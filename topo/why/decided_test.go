package why

import (
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

// told returns the answer of a view of cn0 and ms0.
func told(own, peer *hostd.QPObject, decided []Decision, packets ...Packet) (because string, s Story) {
	s = Tell(View{Own: Side{Host: "cn0", QP: own}, Peer: Side{Host: "ms0", QP: peer}, Decided: decided, Packets: packets, Faults: []Fault{{Text: "f1 (loss 1%)", Hits: 3, Link: "cn0"}}})
	return strings.Join(s.Because, "\n"), s
}

// A packet that the program of a switch has dropped is told with the program and the rule, also if the switch keeps no
// packets, and no fault rule is suspected.
func TestProgramThatDropped(t *testing.T) {
	drop := Decision{At: at(1 * ms), Switch: "switch", Program: "hundredth", Reason: "hundredth READ", Opcode: "RC_READ_REQUEST", PSN: 100, DestQPN: 2, From: "cn0", Packets: 1}
	own := func() *hostd.QPObject {
		return qp(1, 2, "RTS", again(reason.Timeout, 100, 103), heal(100, "response 1 of 4 of READ 17"))
	}
	text, s := told(own(), qp(2, 1, "RTS"), []Decision{drop})
	if want := "The switch did that: program hundredth of switch drops RC_READ_REQUEST with PSN 100 from cn0: hundredth READ."; !strings.Contains(text, want) || strings.Contains(text, "f1") {
		t.Errorf("no %q, or a fault, in\n%s", want, text)
	}
	if got := s.Events[0]; got.Host != "switch" || got.Text != drop.String() {
		t.Errorf("first event %+v", got)
	}
	if !strings.Contains(strings.Join(s.Look, " "), "rdmalab switch program") {
		t.Errorf("look at %q", s.Look)
	}

	drop.Rule, drop.Program, drop.Reason = "r1", "swordbox", "gap"
	more := drop
	more.PSN = 102
	kept := Packet{At: at(1 * ms), PSN: 100, Opcode: "RC_READ_REQUEST", DestQPN: 2, Link: "cn0", Comment: "dropped by the switch: gap (program swordbox, rule r1)"}
	text, s = told(own(), qp(2, 1, "RTS"), []Decision{drop, more}, kept)
	if want := "The switch did that: program swordbox of switch, by rule r1, drops 2 packets, RC_READ_REQUEST with PSN 100 to PSN 102, from cn0: gap."; !strings.Contains(text, want) {
		t.Errorf("no %q in\n%s", want, text)
	}
	for _, e := range s.Events {
		if strings.Contains(e.Text, "dropped by the switch") {
			t.Errorf("the drop is told twice: %q", e.Text)
		}
	}

	// The first lost packet was lost otherwise, and the program dropped those behind it.
	text, _ = told(own(), qp(2, 1, "RTS"), []Decision{more})
	if !strings.Contains(text, "The switch dropped packets behind it: ") || !strings.Contains(text, "PSN 102 from cn0: gap") || !strings.Contains(text, "f1 (loss 1%)") {
		t.Errorf("no decision, or no fault, in\n%s", text)
	}
}

// A NAK that the program of a switch has made is not taken for one of the peer.
func TestProgramThatAnswered(t *testing.T) {
	nak := Decision{At: at(8 * ms), Switch: "switch", Program: "swordbox", Opcode: "NAK_REM_OP", PSN: 100, DestQPN: 1, From: "cn0", Packets: 1}
	text, s := told(qp(1, 2, "ERR", failed(reason.PeerOperation, "remote operation error", "the peer answered with it")), qp(2, 1, "RTS"), []Decision{nak})
	if want := "The answer NAK_REM_OP with PSN 100 came from the switch, not from ms0: program swordbox of switch answers cn0 with NAK_REM_OP with PSN 100."; !strings.Contains(text, want) {
		t.Errorf("no %q in\n%s", want, text)
	}
	if len(s.Events) < 2 || s.Events[len(s.Events)-2].Text != nak.String() {
		t.Errorf("events %+v", s.Events)
	}
	nak.PSN = 300
	if text, _ = told(qp(1, 2, "ERR", failed(reason.PeerOperation, "remote operation error", "x")), nil, []Decision{nak}); strings.Contains(text, "came from the switch") {
		t.Errorf("a NAK of another PSN is told:\n%s", text)
	}
	nak.From = ""
	if got := nak.String(); got != "program swordbox of switch sends NAK_REM_OP with PSN 300" {
		t.Error(got)
	}
}

// A sequence NAK of the switch is not the peer's.
func TestGapThatTheSwitchNoticed(t *testing.T) {
	var all []Decision
	for i := range uint32(5) {
		all = append(all, Decision{At: at(2 * ms), Switch: "switch", Program: "swordbox", Rule: "r1", Reason: "gap", Opcode: "RC_WRITE_ONLY", PSN: 101 + i, DestQPN: 2, From: "cn0", Packets: 1})
	}
	all = append(all, Decision{At: at(2 * ms), Switch: "switch", Program: "swordbox", Rule: "r1", Opcode: "NAK_PSN_SEQ", PSN: 100, DestQPN: 1, From: "cn0", Packets: 1})
	text, s := told(qp(1, 2, "RTS", again(reason.SequenceNak, 100, 105), heal(100, "packet 1 of 4 of WRITE 17")), qp(2, 1, "RTS"), all)
	for _, want := range []string{
		"The switch noticed it by a later packet: program swordbox of switch, by rule r1, answers cn0 with NAK_PSN_SEQ with PSN 100.",
		"The switch dropped packets behind it: program swordbox of switch, by rule r1, drops 5 packets, RC_WRITE_ONLY with PSN 101 to PSN 105, from cn0: gap.", "f1 (loss 1%)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "ms0 noticed") || len(s.Events) != 4 {
		t.Errorf("%d events and\n%s", len(s.Events), text)
	}
}

// A packet between two drops of a program, which a fault has lost, is not taken for one that the program dropped.
func TestLostBetweenDrops(t *testing.T) {
	drop := Decision{At: at(1 * ms), Switch: "switch", Program: "hundredth", Reason: "hundredth READ", Opcode: "RC_READ_REQUEST", PSN: 100, DestQPN: 2, From: "cn0", Packets: 1}
	last := drop
	last.PSN, last.At = 500, at(2*ms)
	kept := Packet{At: at(2 * ms), PSN: 300, Opcode: "RC_READ_REQUEST", DestQPN: 2, Link: "cn0", Comment: "fault f1 (loss 1%): dropped"}
	same := kept
	same.Comment = "dropped by the switch: hundredth READ"
	for _, p := range []Packet{kept, same} {
		text, s := told(qp(1, 2, "RTS", again(reason.Timeout, 300, 303), heal(300, "response 1 of 4 of READ 17")), qp(2, 1, "RTS"), []Decision{drop, last}, p)
		if strings.Contains(text, "hundredth of switch") || !strings.Contains(text, "RC_READ_REQUEST with PSN 300 on cn0, "+p.Comment) {
			t.Errorf("the program is named, or the cause is not, in\n%s", text)
		}
		if got := s.Events[0].Text; !strings.Contains(got, "drops 2 packets, RC_READ_REQUEST with PSN 100 to PSN 500,") {
			t.Errorf("first event %q", got)
		}
	}

	nak := Decision{At: at(8 * ms), Switch: "switch", Program: "swordbox", Opcode: "NAK_REM_OP", PSN: 90, DestQPN: 1, From: "cn0", Packets: 1}
	next := nak
	next.PSN = 100
	text, _ := told(qp(1, 2, "ERR", failed(reason.PeerOperation, "remote operation error", "x")), nil, []Decision{nak, next})
	if !strings.Contains(text, "The answer NAK_REM_OP with PSN 100 came from the switch") {
		t.Errorf("the second answer is not told in\n%s", text)
	}
}

// What was dropped in the other direction, with the same PSN, explains no loss.
func TestDropOfTheOtherDirection(t *testing.T) {
	own := func(peer uint32) *hostd.QPObject {
		return qp(1, peer, "RTS", again(reason.Timeout, 100, 103), heal(100, "packet 1 of 4 of WRITE 17"))
	}
	for name, c := range map[string]struct {
		peer uint32
		from string
		qpn  uint32
		want bool
	}{
		"a request":                               {2, "cn0", 2, true},
		"an answer":                               {2, "ms0", 1, false},
		"a request from another switch":           {2, "leaf0-leaf1", 2, true},
		"an answer from another switch":           {2, "leaf0-leaf1", 1, false},
		"a request, of queue pairs of one number": {1, "cn0", 1, true},
		"an answer, of queue pairs of one number": {1, "ms0", 1, false},
	} {
		drop := Decision{At: at(1 * ms), Switch: "switch", Program: "odd", Reason: "odd", Opcode: "x", PSN: 100, DestQPN: c.qpn, From: c.from, Packets: 1}
		if text, _ := told(own(c.peer), qp(c.peer, 1, "RTS"), []Decision{drop}); strings.Contains(text, "The switch did that") != c.want {
			t.Errorf("%s:\n%s", name, text)
		}
	}
	answer := Packet{At: at(1 * ms), PSN: 100, Opcode: "RC_ACK", DestQPN: 1, Link: "cn0", Comment: "fault f2: dropped"}
	if text, _ := told(own(2), qp(2, 1, "RTS"), nil, answer); strings.Contains(text, "RC_ACK") {
		t.Errorf("the drop of an answer explains the loss of a request:\n%s", text)
	}
}

// Equal decisions are told as one if they follow each other soon.
func TestDecisionsTogether(t *testing.T) {
	d := Decision{At: at(0), Switch: "s", Program: "p", Opcode: "NAK_REM_OP", PSN: 7, From: "cn0", Packets: 1}
	later, other := d, d
	later.At, other.From = at(5*ms), "cn1"
	far := d
	far.At = at(50 * ms)
	got := together([]Decision{d, other, later, far})
	if len(got) != 3 || got[0].Times != 2 || got[0].String() != "program p of s answers cn0 with NAK_REM_OP with PSN 7, 2 times" || got[2].Times != 1 {
		t.Errorf("%+v", got)
	}
}

// Of one work request, only the decisions about its packets are told.
func TestNarrowedDecisions(t *testing.T) {
	v := View{Own: Side{Host: "cn0", QP: qp(1, 2, "RTS")}, Decided: []Decision{{PSN: 99}, {PSN: 100}, {PSN: 103}, {PSN: 104}}}
	if got := Narrow(v, write).Decided; len(got) != 2 || got[0].PSN != 100 || got[1].PSN != 103 {
		t.Errorf("%v", got)
	}
}
