// Package workers runs the jobs of one step on several processors, and waits for all of them.
package workers

import (
	"sync"
	"sync/atomic"
)

// Crew is some goroutines. The methods Each and Close are for one goroutine; Fail and Err for any.
type Crew struct {
	job   func(i int)
	jobs  int
	next  atomic.Int64 // the job that is taken next
	start []chan struct{}
	done  sync.WaitGroup

	mu  sync.Mutex
	err error // of Fail
}

// New makes a crew that runs n jobs at a time, the caller of Each included; less than 1 means 1. The caller
// closes it.
func New(n int) *Crew {
	c := new(Crew)
	for range n - 1 {
		start := make(chan struct{}, 1)
		c.start = append(c.start, start)
		go func() {
			for range start {
				c.work()
				c.done.Done()
			}
		}()
	}
	return c
}

// Close ends the goroutines.
func (c *Crew) Close() {
	for _, start := range c.start {
		close(start)
	}
}

// Each calls f for the jobs 0 to jobs-1, in any order and several at a time, and returns when all calls
// have.
func (c *Crew) Each(jobs int, f func(i int)) {
	c.job, c.jobs = f, jobs
	c.next.Store(0)
	c.done.Add(len(c.start))
	for _, start := range c.start {
		start <- struct{}{}
	}
	c.work()
	c.done.Wait()
}

func (c *Crew) work() {
	for i := int(c.next.Add(1)) - 1; i < c.jobs; i = int(c.next.Add(1)) - 1 {
		c.job(i)
	}
}

// Fail keeps an error for Err; later ones are ignored, and so is nil.
func (c *Crew) Fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

// Err returns the first error of Fail.
func (c *Crew) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
