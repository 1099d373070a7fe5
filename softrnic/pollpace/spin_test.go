package pollpace

import (
	"testing"
	"time"
)

func TestQuietCPU(t *testing.T) {
	var s Spinner
	for range 10_000 {
		if !s.Begin() {
			t.Fatal("a wait did not poll, though no other process kept the CPU")
		}
		if s.Took(hogged) {
			t.Fatalf("a pause of %v is a peer's work", hogged)
		}
	}
}

// skips counts the waits that do not poll.
func skips(s *Spinner) (n int) {
	for !s.Begin() {
		n++
	}
	return n
}

func TestHogs(t *testing.T) {
	var s Spinner
	for want := leastSkip; want <= mostSkip; want *= 2 {
		if !s.Took(2 * hogged) {
			t.Fatal("a hog was not seen")
		}
		if n := skips(&s); n != want {
			t.Errorf("%d waits did not poll, want %d", n, want)
		}
	}
	s.Took(time.Second)
	if n := skips(&s); n != mostSkip {
		t.Errorf("%d waits did not poll, want at most %d", n, mostSkip)
	}
	for range 20 {
		s.Found()
	}
	s.Took(time.Second)
	if n := skips(&s); n != leastSkip {
		t.Errorf("%d waits did not poll after many successes, want %d", n, leastSkip)
	}
}

// Waits that share a crowd skip together: what one has found out, another one need not.
func TestSharedCrowd(t *testing.T) {
	var c Crowd
	a, b := Spinner{Crowd: &c}, Spinner{Crowd: &c}
	a.Took(2 * hogged)
	if n := skips(&b); n != leastSkip {
		t.Errorf("%d waits did not poll, want %d", n, leastSkip)
	}
	if !a.Begin() {
		t.Error("the waits are over for both")
	}
}

// A goroutine that polls yields to one that is ready to run, for any number of processors.
func TestPauseLetsGoroutinesRun(t *testing.T) {
	var s Spinner
	s.Begin()
	ran := make(chan struct{})
	go close(ran)
	for end := time.Now().Add(10 * time.Second); ; {
		s.Pause()
		select {
		case <-ran:
			return
		default:
		}
		if time.Now().After(end) {
			t.Fatal("the goroutine never ran")
		}
	}
}

func BenchmarkPause(b *testing.B) {
	var s Spinner
	s.Begin()
	for b.Loop() {
		s.Pause()
	}
}

// A pause counts as spent up to the length of an empty one; the rest was another process's.
func TestSpent(t *testing.T) {
	var s Spinner
	for wait := range 2 {
		if !s.Begin() || s.Spent() != 0 {
			t.Fatalf("wait %d: %v spent before the first pause", wait, s.Spent())
		}
		s.paused(600 * time.Nanosecond)
		s.paused(hogged)
		if s.paused(emptyPause); s.Spent() != 600*time.Nanosecond+2*emptyPause {
			t.Errorf("wait %d: %v spent, want the first pause and two empty ones", wait, s.Spent())
		}
	}
	s.Begin()
	s.Pause()
	if s.Spent() <= 0 || s.Spent() > emptyPause {
		t.Errorf("a pause of this CPU has spent %v; want up to %v", s.Spent(), emptyPause)
	}
}
