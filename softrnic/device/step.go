package device

import (
	"runtime"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/pathtrace"
	"github.com/rdmalab/rdmalab/softrnic/pollpace"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// flushFrames is the number of collected frames at which a step sends them, even within a receive
// batch. That many fill a send batch, and still fit into the processor's cache.
const flushFrames = 64

// flushBytes is the number of collected bytes at which a step sends its frames, even within a
// receive batch. So many bytes fill one super-frame, which the switch forwards while this NIC goes
// on with the batch.
const flushBytes = 60 << 10

// drainBatches is the largest number of receive batches that are handled before timers fire: 4096
// frames, eight times as many as the receive ring holds by default. A flood of frames can delay
// timers by that much, but not stop them.
const drainBatches = 64

// enter gives the caller exclusive use of the engine, and returns the time.
func (d *Device) enter() clock.Time {
	d.mu.Lock()
	return begin(d)
}

// begin begins a step. The caller holds mu.
func begin(d *Device) clock.Time {
	d.idle = false
	d.entered = d.clock.Now()
	return d.entered
}

// leave ends the exclusive use that enter has given. It sends the frames of the step and wakes
// waiters whose condition is true. It also wakes the progress goroutine if the next deadline is
// earlier than the time at which this goroutine would wake up.
func (d *Device) leave() {
	if d.ring != nil && len(d.out.Frames) > 0 {
		d.tracing.record(d.clock, d.entered, pathtrace.Posted)
	}
	d.costs.posted = true
	d.flush()
	d.costs.posted = false
	idle, emptyPolls := d.idle, d.emptyPolls
	woken := d.unlock()
	if d.link.carrier != nil {
		d.link.carrier.Carry()
	}
	if woken {
		runtime.Gosched() // otherwise the woken goroutines would run only when this one blocks
	}
	if idle {
		pollpace.Pause(emptyPolls, d.pace.Inside)
	}
}

// unlock wakes waiters whose condition is true, and ends the exclusive use of the engine. It reports
// whether it has woken any.
func (d *Device) unlock() (woken bool) {
	woken = d.notify()
	wake := false
	if at := d.deadline(); at < d.armed {
		d.armed, wake = at, true
	}
	d.mu.Unlock()
	if wake {
		d.link.waiter.Wake()
	}
	return woken
}

// serve handles the frames that have arrived at a packetio.Carrier. If another thread is inside the
// device, serve does nothing and returns false, and that thread calls Carry. It also returns false if the
// device is dead.
func (d *Device) serve() bool {
	if !d.mu.TryLock() {
		return false
	}
	d.progress(begin(d))
	alive := !d.dead
	d.unlock()
	return alive
}

// flush sends the collected frames in one call of the port. If the NIC has costs, they first take the
// times of the cost model; if it has queues, they wait there.
func (d *Device) flush() {
	if len(d.out.Frames) == 0 {
		return
	}
	if d.costs.nic != nil {
		d.costs.made(d.clock.Now(), &d.out)
		return
	}
	d.egress.send(d, &d.out)
}

// many reports whether a step must send its frames before it goes on.
func many(out *packetio.Batch) bool {
	return len(out.Frames) >= flushFrames || out.Bytes() >= flushBytes
}

// progress handles one receive batch and the timers that are due at time now. It reports whether there
// was any work to do.
func (d *Device) progress(now clock.Time) (found bool) {
	if d.dead {
		return false
	}
	if d.tell != nil {
		defer catch(d)
	}
	d.testPanic()
	n, err := d.link.port.Recv(&d.rx)
	if err != nil {
		d.fail(err)
		return false
	}
	if n > 0 {
		d.received(now)
	}
	due := d.deadline() <= now
	if due && n > 0 {
		if now, err = d.catchUp(); err != nil {
			d.fail(err)
			return false
		}
		due = d.deadline() <= now
	}
	if due {
		d.tick(now)
	}
	d.flush()
	return n > 0 || due
}

// tick handles deadlines that have passed: those of frames that had to take time, of the engine, and
// of the second NIC at the port (Config.Second), if there is one.
func (d *Device) tick(now clock.Time) {
	d.costs.due(d, now)
	d.egress.due(d, now)
	if d.e.Deadline() <= now {
		d.e.Tick(now, &d.out)
	}
	d.second.tick(now, &d.out)
	if d.second.changed() {
		d.e.Notify()
	}
}

// catchUp handles the frames that are left in the receive ring, at most drainBatches batches. It
// returns the time of the last batch. It is called before timers fire: if the process did not run
// for a while, responses may wait in the ring that make a due timer unnecessary.
func (d *Device) catchUp() (now clock.Time, err error) {
	for range drainBatches {
		n, err := d.link.port.Recv(&d.rx)
		now = d.clock.Now()
		if n == 0 || err != nil {
			return now, err
		}
		d.received(now)
	}
	return now, nil
}

// received handles the frames of one receive call.
func (d *Device) received(now clock.Time) {
	if d.ring != nil {
		d.tracing.record(d.clock, now, pathtrace.Received)
	}
	if d.egress.bank != nil {
		d.egress.control(now, &d.rx)
	}
	if d.costs.nic != nil {
		d.costs.arrived(now, d.rx.Frames)
		return
	}
	d.handle(now, d.rx.Frames)
	d.mark(pathtrace.Handled)
}

func (d *Device) handle(now clock.Time, frames []packetio.Frame) {
	for i := range frames {
		if d.second.takes(&frames[i]) {
			d.toSecond(frames[i])
			continue
		}
		d.e.Frame(now, 0, frames[i], &d.out)
		if many(&d.out) {
			d.flush()
		}
	}
	d.e.EndBatch(now, &d.out)
	if d.second.busy {
		d.second.endBatch(d.clock.Now(), &d.out)
	}
	if d.second.changed() {
		d.e.Notify()
	}
}

// fail stops a NIC whose port has failed.
func (d *Device) fail(err error) {
	if d.dead {
		return
	}
	d.failure = err
	d.e.SetLink(false)
	end(d, d.clock.Now())
}

// notify wakes the waiters whose condition is true, if the engine's Activity has changed since the
// last check. It reports whether it woke any.
func (d *Device) notify() bool {
	if d.seen == d.e.Activity() {
		return false
	}
	d.seen = d.e.Activity()
	if d.tell != nil {
		defer catch(d)
	}
	kept := d.waiting[:0]
	for _, w := range d.waiting {
		switch {
		case w.cond.Ready(d.e):
			w.result <- nil // never blocks, because the capacity is 1 and each waiter gets one result
		case d.dead:
			w.result <- verbs.ErrClosed
		default:
			kept = append(kept, w)
		}
	}
	woken := len(kept) < len(d.waiting)
	clear(d.waiting[len(kept):])
	d.waiting = kept
	return woken
}
