package device

import "time"

// Bounds of polling on a crowded CPU.
const (
	// crowdedStep is how long one fruitless step with its yield may take: with nobody else on the CPU it takes a
	// microsecond or two.
	crowdedStep = 10 * time.Microsecond
	// leastCrowd and mostCrowd bound how many waits do not poll after that happened.
	leastCrowd, mostCrowd = 16, 1024
)

// crowd remembers whether others want the CPU. Polling then takes it from the very processes that are waited for, and
// Linux lets who yields to them wait for a whole slice of their time; to sleep is cheap, because a CPU that does not
// idle wakes a sleeper at once.
type crowd struct {
	left int // waits that shall not poll
	last int // how many that was the last time
}

// skip says that this wait shall not poll.
func (c *crowd) skip() bool {
	if c.left == 0 {
		return false
	}
	c.left--
	return true
}

// found notes that somebody else ran during a step.
func (c *crowd) found() {
	c.last = min(max(2*c.last, leastCrowd), mostCrowd)
	c.left = c.last
}

// gone notes that polling found what it waited for.
func (c *crowd) gone() { c.last /= 2 }
