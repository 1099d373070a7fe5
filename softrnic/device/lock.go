package device

import (
	"runtime"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/pathtrace"
	"github.com/rdmalab/rdmalab/softrnic/pollpace"
)

// enter gives the caller exclusive use of the engine, and returns the time.
func (c *core) enter() clock.Time {
	c.mu.Lock()
	return c.begin()
}

// tryEnter is enter, except that it returns false if another thread is inside.
func (c *core) tryEnter() (now clock.Time, ok bool) {
	if !c.mu.TryLock() {
		return 0, false
	}
	return c.begin(), true
}

// begin begins a step. The caller holds mu.
func (c *core) begin() clock.Time {
	c.empty.idle = false
	c.entered = c.clock.Now()
	return c.entered
}

// leave ends the exclusive use that enter has given. It sends the frames of the step and wakes
// waiters whose condition is true. It also wakes the progress goroutine if the next deadline is
// earlier than the time at which this goroutine would wake up.
func (c *core) leave() {
	if c.trace.ring != nil && len(c.out.Frames) > 0 {
		c.trace.record(c.clock, c.entered, pathtrace.Posted)
	}
	c.costs.posted = true
	c.flush()
	c.costs.posted = false
	empty := c.empty
	woken := c.unlock()
	c.link.carry()
	if woken {
		runtime.Gosched() // otherwise the woken goroutines would run only when this one blocks
	}
	if empty.idle {
		pollpace.Pause(empty.n, c.inside)
	}
}

// unlock wakes waiters whose condition is true, and ends the exclusive use of the engine. It reports
// whether it has woken any.
func (c *core) unlock() (woken bool) {
	woken = c.notify()
	wake := false
	if at := c.deadline(); at < c.armed {
		c.armed, wake = at, true
	}
	c.mu.Unlock()
	if wake {
		c.link.waiter.Wake()
	}
	return woken
}

// serve handles the frames that have arrived at a packetio.Carrier. If another thread is inside the
// device, serve does nothing and returns false, and that thread calls Carry. It also returns false if the
// device is dead.
func (c *core) serve() bool {
	now, ok := c.tryEnter()
	if !ok {
		return false
	}
	c.progress(now)
	alive := !c.ending.dead
	c.unlock()
	return alive
}

// release ends exclusive use that mu alone has given, for a step that has sent nothing. Frames that came
// meanwhile at a carrier are left to the thread that was inside.
func (c *core) release() {
	c.mu.Unlock()
	c.link.carry()
}

// leaveSafely is leave as a deferred function, after code that may panic.
func (c *core) leaveSafely() {
	if c.ending.tell != nil {
		if v := recover(); v != nil {
			c.broke(v)
		}
	}
	c.leave()
}
