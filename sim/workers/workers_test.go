package workers

import (
	"errors"
	"sync/atomic"
	"testing"
)

// Each job runs once, and has run when Each returns.
func TestEach(t *testing.T) {
	for _, n := range []int{0, 1, 2, 5} {
		c := New(n)
		for _, jobs := range []int{0, 1, 3, 100} {
			ran := make([]atomic.Int32, jobs)
			c.Each(jobs, func(i int) { ran[i].Add(1) })
			for i := range ran {
				if k := ran[i].Load(); k != 1 {
					t.Fatalf("%d workers: job %d of %d has run %d times", n, i, jobs, k)
				}
			}
		}
		c.Close()
	}
}

func TestTheFirstErrorStays(t *testing.T) {
	c := New(3)
	defer c.Close()
	first := errors.New("first")
	c.Fail(nil)
	if c.Err() != nil {
		t.Error(c.Err())
	}
	c.Fail(first)
	c.Fail(errors.New("second"))
	if !errors.Is(c.Err(), first) {
		t.Error(c.Err())
	}
}
