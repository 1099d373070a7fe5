package serve

import (
	"testing"
	"time"
)

// Programs are told that more threads poll than there are processors as long as they are at work: they
// have posted or polled a short time ago.
func TestPollerCountsProgramsAtWork(t *testing.T) {
	s, _, _ := pumpOf(t, 2)
	p := &Poller{procs: 2, ports: s.ports}
	a, b := s.ports[0], s.ports[1]
	now := time.Now()
	expect := func(when string, want uint64) {
		t.Helper()
		p.count(now)
		for i, q := range p.ports {
			if got := q.ctl.Crowded.Load(); got != want {
				t.Errorf("%s: program %d reads %d, want %d", when, i, got, want)
			}
		}
		now = now.Add(countTime)
	}
	expect("no program is at work", 0)
	a.ctl.Polls.Add(1)
	expect("one program polls beside the thread on two processors", 0)
	b.load.rang = true
	expect("the other one posts", 1)
	expect("a millisecond later", 1)
	now = now.Add(workTime)
	a.ctl.Polls.Add(1)
	expect("only the first one polls on", 0)
}
