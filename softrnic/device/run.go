package device

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// pollGrace is how long the progress goroutine leaves the port to an application that has polled,
// before it checks again. It bounds how late a frame is handled when an application stops polling.
const pollGrace = 500 * time.Microsecond

// run is the progress goroutine.
func (d *Device) run() {
	defer close(d.done)
	pause := time.NewTimer(pollGrace)
	defer pause.Stop()
	var polled uint64
	for {
		for d.busy(&polled) {
			pause.Reset(pollGrace)
			select {
			case <-pause.C:
			case <-d.kick:
				polled = d.polled.Load()
			}
		}
		wait, ok := d.sleepFor()
		if !ok {
			return
		}
		if err := d.waiter.Wait(wait); err != nil {
			d.enter()
			d.fail(err)
			d.leave()
			return
		}
		if d.busy(&polled) {
			continue // the application has found the frame, or will
		}
		d.drain()
	}
}

// maxDrain bounds the receive batches between two looks at whether an application polls.
const maxDrain = 16

// drain makes progress until there is none to be made.
func (d *Device) drain() {
	for range maxDrain {
		d.enter()
		d.armed = 0 // this goroutine looks at the deadline before it sleeps again
		found := d.progress()
		d.leave()
		if !found {
			return
		}
	}
}

// busy reports whether an application polls, or has polled since polled was noted. While it does,
// it keeps the deadlines.
func (d *Device) busy(polled *uint64) bool {
	n := d.polled.Load()
	changed := n != *polled
	*polled = n
	if !changed && !d.polling.Load() {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.armed = 0 // no wake-ups while it polls
	return !d.dead
}

// sleepFor returns how long to wait, and notes it in armed. False: the device is dead. A deadline
// that is no longer needed is kept: it costs one look without result, where dropping it would cost
// a wake-up for the next post.
func (d *Device) sleepFor() (time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return 0, false
	}
	now := d.clock.Now()
	at := d.e.Deadline()
	if d.armed <= now || at < d.armed {
		d.armed = at
	}
	if d.armed == clock.Never {
		return -1, true
	}
	return max(0, d.armed.Sub(now)), true
}

// resume makes the progress goroutine take over at once.
func (d *Device) resume() {
	select {
	case d.kick <- struct{}{}:
	default: // a kick is pending
	}
}
