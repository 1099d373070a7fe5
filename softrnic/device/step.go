package device

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/pathtrace"
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

// flush sends the collected frames in one call of the port. If the NIC has costs, they first take the
// times of the cost model; if it has queues, they wait there.
func (c *core) flush() {
	if len(c.out.Frames) == 0 {
		return
	}
	if c.costs.nic != nil {
		c.costs.made(c.clock.Now(), &c.out)
		return
	}
	c.egress.send(c, &c.out)
}

// many reports whether a step must send its frames before it goes on.
func many(out *packetio.Batch) bool {
	return len(out.Frames) >= flushFrames || out.Bytes() >= flushBytes
}

// progress handles one receive batch and the timers that are due at time now. It reports whether there
// was any work to do.
func (c *core) progress(now clock.Time) (found bool) {
	if c.ending.dead {
		return false
	}
	if c.ending.tell != nil {
		defer c.catch()
	}
	c.ending.testPanic()
	n, err := c.link.port.Recv(&c.rx)
	if err != nil {
		c.fail(err)
		return false
	}
	if n > 0 {
		c.received(now)
	}
	due := c.deadline() <= now
	if due && n > 0 {
		if now, err = c.catchUp(); err != nil {
			c.fail(err)
			return false
		}
		due = c.deadline() <= now
	}
	if due {
		c.tick(now)
	}
	c.flush()
	return n > 0 || due
}

// tick handles deadlines that have passed: those of frames that had to take time, of the engine, and
// of the second NIC at the port (Config.Second), if there is one.
func (c *core) tick(now clock.Time) {
	c.costs.due(c, now)
	c.egress.due(c, now)
	if c.e.Deadline() <= now {
		c.e.Tick(now, &c.out)
	}
	c.second.tick(now, &c.out)
	if c.second.changed() {
		c.e.Events.Notify()
	}
}

// catchUp handles the frames that are left in the receive ring, at most drainBatches batches. It
// returns the time of the last batch. It is called before timers fire: if the process did not run
// for a while, responses may wait in the ring that make a due timer unnecessary.
func (c *core) catchUp() (now clock.Time, err error) {
	for range drainBatches {
		n, err := c.link.port.Recv(&c.rx)
		now = c.clock.Now()
		if n == 0 || err != nil {
			return now, err
		}
		c.received(now)
	}
	return now, nil
}

// received handles the frames of one receive call.
func (c *core) received(now clock.Time) {
	if c.trace.ring != nil {
		c.trace.record(c.clock, now, pathtrace.Received)
	}
	if c.egress.bank != nil {
		c.egress.control(now, &c.rx)
	}
	if c.costs.nic != nil {
		c.costs.arrived(now, c.rx.Frames)
		return
	}
	c.handle(now, c.rx.Frames)
	c.mark(pathtrace.Handled)
}

func (c *core) handle(now clock.Time, frames []packetio.Frame) {
	for i := range frames {
		if c.second.takes(&frames[i]) {
			c.toSecond(frames[i])
			continue
		}
		c.e.Frame(now, 0, frames[i], &c.out)
		if many(&c.out) {
			c.flush()
		}
	}
	c.e.EndBatch(now, &c.out)
	if c.second.busy {
		c.second.endBatch(c.clock.Now(), &c.out)
	}
	if c.second.changed() {
		c.e.Events.Notify()
	}
}

// fail stops a NIC whose port has failed.
func (c *core) fail(err error) {
	if c.ending.dead {
		return
	}
	c.ending.failure = err
	c.e.SetLink(false)
	c.end(c.clock.Now())
}

// end makes the NIC unusable for good, wakes all waiters, and drops frames that were not sent.
func (c *core) end(now clock.Time) {
	c.ending.dead = true
	c.e.Down(now)
	c.second.down()
	c.egress.clear(now)
	c.e.Events.Notify() // even if the NIC was already down
}

// notify wakes the waiters whose condition is true, if the engine's Activity has changed since the
// last check. It reports whether it woke any.
func (c *core) notify() bool {
	if c.waiters.seen == c.e.Events.Activity() {
		return false
	}
	c.waiters.seen = c.e.Events.Activity()
	if c.ending.tell != nil {
		defer c.catch()
	}
	kept := c.waiters.list[:0]
	for _, w := range c.waiters.list {
		switch {
		case w.cond.Ready(c.e):
			w.result <- nil // never blocks, because the capacity is 1 and each waiter gets one result
		case c.ending.dead:
			w.result <- verbs.ErrClosed
		default:
			kept = append(kept, w)
		}
	}
	woken := len(kept) < len(c.waiters.list)
	clear(c.waiters.list[len(kept):])
	c.waiters.list = kept
	return woken
}
