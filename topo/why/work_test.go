package why

import (
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/topo/hostd"
)

// Of two work requests that were sent again, and one that failed, each has its own story.
func TestOneWorkRequest(t *testing.T) {
	at := time.Unix(1000, 0)
	work := func(number, id uint64, psn uint32) *hostd.WorkStatus {
		return &hostd.WorkStatus{Number: number, ID: id, Op: "WRITE", Length: 2048, PSN: psn, Packets: 2}
	}
	again := func(w *hostd.WorkStatus, text string) []hostd.NoteStatus {
		return []hostd.NoteStatus{
			{At: at, Kind: "sent again", First: w.PSN, Last: w.PSN + 1, Work: w, Text: text},
			{At: at.Add(time.Second), Since: at, Kind: "healed", First: w.PSN, Last: w.PSN, Work: w, Packets: 2, Times: 1, Text: text + " healed"},
		}
	}
	q := &hostd.QPObject{}
	q.QPN, q.PeerQPN, q.State = 0x11, 0x22, "ERR"
	q.Notes = append(again(work(1, 7, 100), "alpha"), again(work(2, 1, 200), "beta")...)
	failed := hostd.NoteStatus{At: at.Add(2 * time.Second), Kind: "failed", First: 300, Last: 301, Work: work(3, 9, 300), Status: "remote access error", Because: "of its key"}
	q.Notes, q.LastError = append(q.Notes, failed), &failed
	peer := &hostd.QPObject{Notes: []hostd.NoteStatus{{At: at, Kind: "missed", First: 100, Last: 100, Text: "100 is missing"}, {At: at, Kind: "missed", First: 200, Last: 200, Text: "200 is missing"}}}
	v := View{Own: Side{Host: "cn0", QP: q}, Peer: Side{Host: "ms0", QP: peer}, Packets: []Packet{{PSN: 101, Comment: "gone"}, {PSN: 201, Comment: "too"}}}

	for id, want := range map[uint64]struct{ has, hasNot []string }{
		7: {[]string{"alpha", "100 is missing", "gone", "PSN 100 was acknowledged"}, []string{"beta", "200 is", "too", "of its key"}},
		1: {[]string{"beta", "200 is missing", "too"}, []string{"alpha", "100 is", "gone", "of its key"}}, // the wr_id comes before the number
		2: {[]string{"beta"}, []string{"alpha"}},                                                          // a number
		9: {[]string{"of its key", "remote access error"}, []string{"alpha", "beta", "is missing"}},
	} {
		w := WorkOf(q, id)
		if w == nil || ChooseWork([]hostd.QPObject{{}, *q}, id) == nil {
			t.Fatalf("work request %d: none", id)
		}
		s := Tell(Narrow(v, w))
		text := strings.Join(s.Because, "\n")
		for _, e := range s.Events {
			text += "\n" + e.Text
		}
		for _, x := range want.has {
			if !strings.Contains(text, x) {
				t.Errorf("work request %d: no %q in\n%s", id, x, text)
			}
		}
		for _, x := range want.hasNot {
			if strings.Contains(text, x) {
				t.Errorf("work request %d: %q in\n%s", id, x, text)
			}
		}
	}
	if WorkOf(q, 77) != nil || ChooseWork([]hostd.QPObject{*q}, 77) != nil {
		t.Error("work request 77 is known")
	}
	if len(q.Notes) != 5 || q.LastError == nil {
		t.Error("the view that was narrowed has changed")
	}
}
