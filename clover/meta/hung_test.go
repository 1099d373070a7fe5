package meta

import (
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// A memory service that refuses all questions is asked once a second, and hangs after two seconds. One
// answer ends that. What a question says that was asked before the connection broke does not matter.
func TestQuestionsWithoutAnAnswer(t *testing.T) {
	at := func(d time.Duration) clock.Time { return clock.Time(1).Add(d) }
	w := &watched{}
	ask := func(d time.Duration, ran bool) {
		if at(d) < w.askAt {
			t.Errorf("asked after %v, not before %v", d, w.askAt.Sub(at(0)))
		}
		w.asked = at(d)
		w.note(ran, at(d+time.Millisecond))
	}
	ask(0, true)
	ask(1100*time.Millisecond, false)
	ask(2200*time.Millisecond, false)
	for d, want := range map[time.Duration]bool{2300: false, 3099: false, 3100: true, 5000: true} {
		if got := w.hangs(at(d * time.Millisecond)); got != want {
			t.Errorf("after %v ms: hangs %v", int(d), got)
		}
	}
	ask(3300*time.Millisecond, true)
	if ask(4400*time.Millisecond, false); w.hangs(at(time.Minute)) || w.silent != at(4400*time.Millisecond) {
		t.Errorf("hangs after one question, silent since %v", w.silent.Sub(at(0)))
	}
	w.missed, w.asked = 0, 0
	if w.note(false, at(time.Minute)); w.missed != 0 {
		t.Error("an old question counts")
	}
}

// The metadata server breaks its connections to servers whose memory services hang only if all nodes have
// a copy elsewhere, on a server whose service has answered since.
func TestSparedServers(t *testing.T) {
	const silent = clock.Time(10)
	over := silent.Add(servicePatience)
	for name, c := range map[string]struct {
		change func(s *Server, other *watched)
		now    clock.Time
		want   []int
	}{
		"the other one answers":           {func(*Server, *watched) {}, over, []int{0}},
		"too early":                       {func(*Server, *watched) {}, over - 1, nil},
		"one question":                    {func(s *Server, _ *watched) { s.members.watched[0].missed = 1 }, over, nil},
		"the other one answered before":   {func(_ *Server, w *watched) { w.heard-- }, over, nil},
		"the other one was not asked yet": {func(_ *Server, w *watched) { w.heard = 0 }, over, nil},
		"the other one misses a question": {func(_ *Server, w *watched) { w.missed = 1 }, over, nil},
		"both hang":                       {func(_ *Server, w *watched) { w.missed, w.silent = 2, 10 }, over, nil},
		"the other one is out":            {func(s *Server, _ *watched) { s.mem.memory[1].out = true }, over, nil},
		"the other one lost its memory":   {func(s *Server, _ *watched) { s.mem.memory[1].blank = true }, over, nil},
		"there is one copy of each node":  {func(s *Server, _ *watched) { s.mem.space.Backups = 0 }, over, nil},
		"all copies of other nodes are lost": {func(s *Server, _ *watched) {
			s.mem.memory = append(s.mem.memory, memory{out: true}, memory{out: true}, memory{})
			s.members.watched = append(s.members.watched, watched{}, watched{}, watched{heard: silent})
		}, over, []int{0}},
		"no service hangs, and one is out": {func(s *Server, _ *watched) { s.members.watched[0].missed, s.mem.memory[1].out = 0, true }, over, nil},
	} {
		s, _ := lossy()
		s.mem.space.Backups = 1
		s.members.watched = make([]watched, 2)
		s.members.watched[0].missed, s.members.watched[0].silent, s.members.watched[1].heard = 2, silent, silent
		if c.change(s, &s.members.watched[1]); !slices.Equal(s.members.spared(c.now), c.want) {
			t.Errorf("%s: %v, want %v", name, s.members.spared(c.now), c.want)
		}
	}
}
