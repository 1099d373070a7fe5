package scenario

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
)

// Results come in the order of the numbers. While the first number takes long, only a bounded number
// of others begin.
func TestInOrderIsBounded(t *testing.T) {
	const n = 5000
	var begun atomic.Int64
	most := int64(maxAhead * runtime.GOMAXPROCS(0))
	var got, want []int
	inOrder(n, func() bool { return false }, func(i int) int {
		begun.Add(1)
		for i == 0 && runtime.GOMAXPROCS(0) > 1 && begun.Load() < most {
			runtime.Gosched()
		}
		if i == 0 && begun.Load() > most {
			t.Errorf("%d numbers have begun, and the first is not done; want at most %d", begun.Load(), most)
		}
		return i
	}, func(_, r int) { got = append(got, r) })
	for i := range n {
		want = append(want, i)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d results, not in order", len(got))
	}
}

// After the last number that is wanted, no result is handed on, and inOrder returns.
func TestInOrderEnds(t *testing.T) {
	done := 0
	inOrder(5000, func() bool { return done == 3 }, func(i int) int { return i }, func(int, int) { done++ })
	if done != 3 {
		t.Errorf("%d results, want 3", done)
	}
}
