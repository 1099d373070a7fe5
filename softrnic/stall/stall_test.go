package stall

import (
	"testing"
	"time"
)

// A Log counts all stalls and remembers the newest, oldest first.
func TestLog(t *testing.T) {
	var l Log
	now := time.Unix(9, 0)
	l.Took(now, Least-1)
	if l.Summary() != nil {
		t.Fatalf("a short pause is a stall: %+v", l.Summary())
	}
	l.Took(now, time.Hour)
	if s := l.Summary(); s.Count != 1 || s.Longest != time.Hour || len(s.Recent) != 1 || !s.Recent[0].End().Equal(now) {
		t.Errorf("%+v", s)
	}
	for i := range Kept + 3 {
		l.Took(now, Least+time.Duration(i))
	}
	s := l.Summary()
	if s.Count != Kept+4 || s.Longest != time.Hour || len(s.Recent) != Kept || s.Recent[0].Took != Least+3 || s.Recent[Kept-1].Took != Least+Kept+2 {
		t.Errorf("%+v", s)
	}
}

func TestDuring(t *testing.T) {
	begin := time.Unix(100, 0)
	s := &Summary{Recent: []Stall{{begin, time.Second}, {begin.Add(5 * time.Second), 2 * time.Second}, {begin.Add(9 * time.Second), time.Second}}}
	for _, c := range []struct {
		from, to time.Duration
		want     time.Duration // began, after begin; -1: none
	}{
		{-2 * time.Second, 0, -1},
		{-2 * time.Second, 1, 0},
		{time.Second, 5 * time.Second, -1},
		{999 * time.Millisecond, 2 * time.Second, 0},
		{0, 10 * time.Second, 5 * time.Second},
		{7 * time.Second, 20 * time.Second, 9 * time.Second},
	} {
		x, ok := s.During(begin.Add(c.from), begin.Add(c.to))
		if ok != (c.want >= 0) || ok && !x.Began.Equal(begin.Add(c.want)) {
			t.Errorf("from %v to %v: %+v, %t", c.from, c.to, x, ok)
		}
	}
	if _, ok := (*Summary)(nil).During(begin, begin.Add(time.Hour)); ok {
		t.Error("no summary has a stall")
	}
}
