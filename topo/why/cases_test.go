package why

import (
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

// losses are n cases that healed, a millisecond each, the last of them with another code.
func losses(n int, code, last reason.Code) (notes []hostd.NoteStatus) {
	for i := range n {
		if i == n-1 {
			code = last
		}
		from, psn := at(time.Duration(i)*ms), uint32(100+10*i)
		a := again(code, psn, psn)
		a.At = from
		h := heal(psn, "packet 1 of 4 of WRITE 17")
		h.Since, h.At = from, from.Add(ms/2)
		notes = append(notes, a, h)
	}
	return notes
}

// After more losses than the notes hold, the summary says how many there were, what is left and from when on,
// and how one gets all.
func TestOlderCases(t *testing.T) {
	q := qp(1, 2, "RTS", losses(8, reason.ImpliedNak, reason.Timeout)...)
	q.Totals = reason.Totals{Healed: 40, ImpliedNaks: 39, Timeouts: 1}
	text, s := told(q, nil, nil)
	for _, want := range []string{
		"This was the newest of 40 that healed. The notes have 8, from 03:04:05.000000 on: 7 by an implied NAK, 1 by an ACK timeout.",
		"32 older ones have no notes any more: a NIC keeps the newest 16 of a queue pair.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	look := strings.Join(s.Look, "\n")
	for _, want := range []string{"rdmalab capture cn0 -w", "RDMALAB_KEEP"} {
		if !strings.Contains(look, want) {
			t.Errorf("no %q in %s", want, look)
		}
	}
	if e := s.Events[0]; e.Host != "cn0" || e.Text != "its notes begin here: of 32 cases that healed before there are none any more" {
		t.Errorf("first event %+v", e)
	}

	q.Totals.Healed = 8
	text, s = told(q, nil, nil)
	if !strings.Contains(text, "This was the newest of 8 that healed.") || strings.Contains(text, "older") || strings.Contains(strings.Join(s.Look, "\n"), "capture") {
		t.Errorf("all notes are there, and\n%s", text)
	}
	q = qp(1, 2, "RTS", losses(1, reason.Timeout, reason.Timeout)...)
	q.Totals.Healed = 1
	if text, _ = told(q, nil, nil); strings.Contains(text, "newest of") {
		t.Errorf("of one case:\n%s", text)
	}
}

// Equal cases that follow each other become one line, behind which the newest of them stands in full.
func TestEqualCasesAreGrouped(t *testing.T) {
	q := qp(1, 2, "RTS", losses(8, reason.ImpliedNak, reason.Timeout)...)
	q.Totals.Healed = 8
	_, s := told(q, nil, nil)
	if len(s.Events) != 5 {
		t.Fatalf("%d events: %v", len(s.Events), s.Events)
	}
	if e := s.Events[0]; e.Times != 6 || e.Host != "cn0" || !e.At.Equal(at(0)) || e.Text != "6 cases like the next one, PSN 100 to PSN 150, until 03:04:05.005500" {
		t.Errorf("%+v", e)
	}
	if !s.Events[1].At.Equal(at(6*ms)) || !s.Events[3].At.Equal(at(7*ms)) {
		t.Errorf("%v", s.Events)
	}
	q = qp(1, 2, "RTS", losses(2, reason.Timeout, reason.Timeout)...)
	if _, s = told(q, nil, nil); len(s.Events) != 4 {
		t.Errorf("two cases have %d events", len(s.Events))
	}
}
