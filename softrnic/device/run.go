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
		if err := d.link.waiter.Wait(wait); err != nil {
			d.enter()
			d.fail(err)
			d.leave()
			return
		}
		if d.busy(&polled) {
			continue // an application polls and handles the frame
		}
		d.drain()
	}
}

// maxDrain is the largest number of receive batches between two checks of whether an application
// polls.
const maxDrain = 16

// drain handles frames and timers until there is nothing to do, or maxDrain receive batches were
// handled.
func (d *Device) drain() {
	for range maxDrain {
		now := d.enter()
		d.armed = 0 // this goroutine is awake, so leave need not wake it for a deadline
		found := d.progress(now)
		d.leave()
		if !found {
			return
		}
	}
}

// busy reports whether an application polls, or has polled since the last call of busy. Such an
// application also handles timers that are due. polled holds the value of d.polled at the last
// call. If the device is dead, busy returns false.
func (d *Device) busy(polled *uint64) bool {
	n := d.polled.Load()
	changed := n != *polled
	*polled = n
	if !changed && !d.polling.Load() {
		return false
	}
	if !d.mu.TryLock() {
		return true // the application is inside just now
	}
	defer d.link.release(&d.mu)
	d.armed = 0 // no wake-ups for timers while an application polls
	return !d.dead
}

// sleepFor returns how long the progress goroutine may sleep (−1 means without limit), and stores
// in armed when the goroutine will wake up. It returns false if the device is dead. If armed is
// already earlier than the next deadline, sleepFor does not change it. Then the goroutine may wake
// up once with nothing to do. If sleepFor set armed to a later time, the next post with an earlier
// deadline would have to wake the goroutine, which costs more.
func (d *Device) sleepFor() (time.Duration, bool) {
	d.mu.Lock()
	defer d.link.release(&d.mu)
	if d.dead {
		return 0, false
	}
	now := d.clock.Now()
	at := d.deadline()
	if d.armed <= now || at < d.armed {
		d.armed = at
	}
	if d.armed == clock.Never {
		return -1, true
	}
	return d.clock.Until(d.armed), true
}

// signal wakes a goroutine that receives from it; its capacity is 1.
type signal chan struct{}

func (s signal) raise() {
	select {
	case s <- struct{}{}:
	default: // a wake-up is already requested
	}
}
