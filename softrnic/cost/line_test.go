package cost

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// A frame occupies the line with its overhead; the delay passes afterwards, and limits nothing.
func TestLine(t *testing.T) {
	l := NewLine(&Link{Rate: 8_000_000_000, Delay: 100, Overhead: 24}) // a byte a nanosecond
	for i, s := range []struct {
		now  clock.Time
		size int
		want clock.Time
	}{{0, 76, 200}, {0, 176, 400}, {299, 76, 500}, {1000, 76, 1200}} {
		if got := l.Send(s.now, s.size); got != s.want {
			t.Errorf("frame %d arrives at %v, want %v", i, got, s.want)
		}
	}
	free := NewLine(&Link{Delay: 7})
	for range 2 {
		if got := free.Send(5, 1<<16); got != 12 {
			t.Errorf("without a rate: %v, want 12ns", got)
		}
	}
	var last clock.Time
	exact := NewLine(&Link{Rate: 100_000_000_000})
	for range 1000 {
		last = exact.Send(0, 64) // 5.12 ns
	}
	if last != 5120 {
		t.Errorf("1000 frames of 5.12 ns arrive at %v", last)
	}
}
