package lease

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// A client's end of a lease ends before the server's, for every delay of request and answer.
func TestTheClientEndsFirst(t *testing.T) {
	terms := Terms{Length: 100, Grace: 10}
	for sent := clock.Time(0); sent < 50; sent += 7 {
		for heard := sent; heard < sent+120; heard += 3 {
			term := Begin(terms.Length, sent)
			for now := sent; now < sent+400; now++ {
				if term.Valid(now) && terms.Lapsed(heard, now) || terms.Over(heard, now) && !terms.Lapsed(heard, now-clock.Time(terms.Grace)) {
					t.Fatalf("sent at %d, heard at %d: at %d the client may go on: %v; over for the server: %v, %v", sent, heard, now, term.Valid(now), terms.Lapsed(heard, now), terms.Over(heard, now))
				}
			}
			if !terms.Over(heard, heard.Add(111)) || terms.Over(heard, heard.Add(110)) || !terms.Lapsed(heard, heard.Add(101)) || terms.Lapsed(heard, heard.Add(100)) {
				t.Fatal("the server's end is not after length and grace")
			}
		}
	}
}

func TestTerm(t *testing.T) {
	var none Term
	if none.Valid(0) || !none.Due(0) {
		t.Error("the zero Term is valid")
	}
	l := Begin(100, 1000)
	if !l.Valid(1099) || l.Valid(1100) || l.Due(1049) || !l.Due(1050) {
		t.Errorf("%+v", l)
	}
	l.Extend(1030)
	l.Extend(1020) // an answer that is read late
	if l.Until != 1130 {
		t.Errorf("until %d", l.Until)
	}
	if l.End(); l.Valid(1) || l.Length != 100 {
		t.Errorf("after its end: %+v", l)
	}
}

// The time for which a word was unchanged begins behind the first answer and ends before the last
// request, and begins again with each change.
func TestWatch(t *testing.T) {
	var w Watch[uint64]
	for _, c := range []struct {
		word       uint64
		asked, now clock.Time
		want       time.Duration
	}{
		{0, 5, 10, 0}, // the zero value is a word, too
		{0, 15, 40, 5},
		{7, 45, 50, 0},
		{7, 48, 60, 0}, // asked before the first answer was there
		{7, 90, 300, 40},
		{0, 310, 320, 0},
		{7, 330, 340, 0},
		{7, 350, 351, 10},
	} {
		if got := w.Seen(c.word, c.asked, c.now); got != c.want {
			t.Errorf("word %d, asked at %d, answered at %d: unchanged for %d, want %d", c.word, c.asked, c.now, got, c.want)
		}
	}
}
