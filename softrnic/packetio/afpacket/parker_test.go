package afpacket

import (
	"testing"
	"time"
)

// shortWait is shorter than the millisecond to which the runtime's poller rounds times up.
const shortWait = 100 * time.Microsecond

func newPortless(t testing.TB) *Waiter {
	t.Helper()
	w, err := NewWaiter(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// A process in which nothing else happens sleeps for less than a millisecond if it has to: pauses and paces of a rack in
// slow motion are that short. A busy machine may wake it late: a few sleeps in sequence are enough.
func TestShortWaitIsShort(t *testing.T) {
	w := newPortless(t)
	short := 0
	for end := time.Now().Add(patience); short < 20; short++ {
		start := time.Now()
		if err := w.Wait(shortWait); err != nil {
			t.Fatal(err)
		}
		took := time.Since(start)
		if took < shortWait {
			t.Fatalf("a wait of %v took %v", shortWait, took)
		}
		if took > 900*time.Microsecond {
			short = -1
		}
		if time.Now().After(end) {
			t.Fatalf("waits of %v take %v", shortWait, took)
		}
	}
}

// A timer that was set for an earlier sleep ends no later one, and one that is set for later delays none.
func TestWaitsDoNotDisturbEachOther(t *testing.T) {
	w := newPortless(t)
	for _, d := range []time.Duration{time.Hour, 3 * time.Millisecond, time.Millisecond, 10 * time.Millisecond, 20 * time.Microsecond, 5 * time.Millisecond} {
		if d == time.Hour {
			done := waiting(w, d)
			blocked(t, w)
			w.Wake()
			if err := finish(t, "Wake", done); err != nil {
				t.Fatal(err)
			}
			continue
		}
		start := time.Now()
		if err := finish(t, "the time", waiting(w, d)); err != nil || time.Since(start) < d {
			t.Errorf("a wait of %v: %v after %v", d, err, time.Since(start))
		}
	}
	// A wait without limit, behind one whose timer has not expired.
	done := waiting(w, 2*time.Millisecond)
	blocked(t, w)
	w.Wake()
	if err := finish(t, "Wake", done); err != nil {
		t.Fatal(err)
	}
	done = waiting(w, -1)
	blocked(t, w)
	select {
	case err := <-done:
		t.Errorf("a wait without limit ended by itself: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	w.Wake()
	if err := finish(t, "Wake", done); err != nil {
		t.Error(err)
	}
}

func BenchmarkShortWait(b *testing.B) {
	w := newPortless(b)
	for b.Loop() {
		if err := w.Wait(shortWait); err != nil {
			b.Fatal(err)
		}
	}
}
