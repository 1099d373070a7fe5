package device

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// pollGrace is how long the progress goroutine leaves the port to an application that polls. Then
// it checks again whether the application has polled meanwhile. So when an application stops
// polling, a frame waits at most twice this time.
const pollGrace = 100 * time.Microsecond

// run is the progress goroutine: it handles frames and timers while no application polls the NIC.
func (d *Device) run() {
	defer close(d.done)
	c, t := &d.core, &d.turns
	pause := time.NewTimer(pollGrace)
	defer pause.Stop()
	var polled uint64
	for {
		for t.busy(&polled) {
			pause.Reset(pollGrace)
			select {
			case <-pause.C:
			case <-t.kick:
				polled = t.polled.Load()
			}
		}
		wait, ok := c.sleepFor()
		if !ok {
			return
		}
		if err := c.link.waiter.Wait(wait); err != nil {
			c.enter()
			c.fail(err)
			c.leave()
			return
		}
		if t.busy(&polled) {
			continue // an application polls and handles the frame
		}
		c.drain()
	}
}

// maxDrain is the largest number of receive batches between two checks of whether an application
// polls.
const maxDrain = 16

// drain handles frames and timers until there is nothing to do, or maxDrain receive batches were
// handled.
func (c *core) drain() {
	for range maxDrain {
		now := c.enter()
		c.armed = 0 // this goroutine is awake, so leave need not wake it for a deadline
		found := c.progress(now)
		c.leave()
		if !found {
			return
		}
	}
}

// sleepFor returns how long the progress goroutine may sleep (−1 means without limit), and stores
// in armed when the goroutine will wake up. It returns false if the device is dead. If armed is
// already earlier than the next deadline, sleepFor does not change it. Then the goroutine may wake
// up once with nothing to do. If sleepFor set armed to a later time, the next post with an earlier
// deadline would have to wake the goroutine, which costs more.
func (c *core) sleepFor() (time.Duration, bool) {
	c.mu.Lock()
	defer c.release()
	if c.ending.dead {
		return 0, false
	}
	now := c.clock.Now()
	at := c.deadline()
	if c.armed <= now || at < c.armed {
		c.armed = at
	}
	if c.armed == clock.Never {
		return -1, true
	}
	return c.clock.Until(c.armed), true
}

// busy reports whether an application polls, or has polled since the last call of busy. Such an
// application also handles timers that are due. polled holds the value of t.polled at the last
// call. If the device is dead, busy returns false.
func (t *turns) busy(polled *uint64) bool {
	n := t.polled.Load()
	changed := n != *polled
	*polled = n
	if !changed && !t.polling.Load() {
		return false
	}
	c := t.core
	if !c.mu.TryLock() {
		return true // the application is inside just now
	}
	defer c.release()
	c.armed = 0 // no wake-ups for timers while an application polls
	return !c.ending.dead
}

// signal wakes a goroutine that receives from it; its capacity is 1.
type signal chan struct{}

func (s signal) raise() {
	select {
	case s <- struct{}{}:
	default: // a wake-up is already requested
	}
}
