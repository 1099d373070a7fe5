package packetbuffer

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// queue is the queue of a port. It exists from the rule for its host on, until the rule has gone and
// no frame is left.
type queue struct {
	Layout
	id   string // of the rule
	port int
	// gone: there is no rule any more, and frames leave without a limit of the rate.
	gone bool
	// local has the frames that leave next. tail has frames that wait for room in flight to the ring;
	// they are behind those in the ring.
	local, tail fifo
	free        clock.Time // when the port has sent the frames that it was given
	ring
	stats Stats
}

// lateness is how much the queue catches up at most when it is called after its deadline.
const lateness = time.Millisecond

// accept takes a frame to the port.
func (q *queue) accept(c *pipeline.Ctx, f packetio.Frame) {
	q.stats.Frames++
	switch {
	case q.empty() && q.tail.n == 0 && (q.local.n < q.High || q.gone):
		q.enqueue(c, f)
		return
	case q.tail.n > 0 || !q.store(c, f):
		if q.tail.n >= q.High {
			q.stats.Blocked++
			return
		}
		q.tail.push(f)
	}
	q.load(c)
}

// store puts a frame into the ring, or drops it. false: at present no server can take it.
func (q *queue) store(c *pipeline.Ctx, f packetio.Frame) bool {
	switch q.ring.store(c, f) {
	case stored:
		q.stats.Stored++
	case full:
		q.stats.Full++
	case blocked:
		return false
	case long:
		q.stats.Long++
	}
	return true
}

// load goes on with the ring until nothing moves.
func (q *queue) load(c *pipeline.Ctx) {
	for moved := true; moved; {
		moved = q.storeTail(c)
		before := q.read
		if q.local.n < q.Low {
			q.ask(c)
		}
		q.comeBack(c)
		moved = moved || q.read != before
	}
}

// storeTail stores the frames that wait for that. If the ring is empty, they wait for the port
// instead, as far as there is room. It reports whether a frame moved.
func (q *queue) storeTail(c *pipeline.Ctx) (moved bool) {
	for q.tail.n > 0 {
		switch {
		case q.empty() && (q.local.n < q.High || q.gone):
			q.enqueue(c, q.tail.pop())
		case q.store(c, q.tail.first()):
			q.tail.pop()
		default:
			return moved
		}
		moved = true
	}
	return moved
}

// comeBack takes the frames that have come back from the ring.
func (q *queue) comeBack(c *pipeline.Ctx) {
	for {
		f, number, ok := q.next()
		if !ok {
			break
		}
		q.stats.Loaded++
		q.stats.Lost += uint64(q.count(number))
		q.enqueue(c, f)
	}
	if q.empty() {
		q.stats.Lost += uint64(q.end())
	}
}

// enqueue sends a frame if the port is free and no other frame waits. Otherwise the frame waits in
// the switch.
func (q *queue) enqueue(c *pipeline.Ctx, f packetio.Frame) {
	if q.local.n == 0 && (q.free <= c.Now || q.gone) {
		q.free = c.Now
		q.transmit(c, f)
		return
	}
	q.local.push(f)
}

// transmit sends a frame.
func (q *queue) transmit(c *pipeline.Ctx, f packetio.Frame) {
	q.stats.Sent++
	if !q.gone {
		const bits = 8
		q.free = q.free.Add(time.Duration(int64(len(f.Data)) * bits * int64(time.Second) / q.Rate))
	}
	c.Transmit(q.port, f, "queued by the switch")
}

// tick sends the frames whose time has come.
func (q *queue) tick(c *pipeline.Ctx) {
	q.free = max(q.free, c.Now.Add(-lateness))
	for q.local.n > 0 && (q.free <= c.Now || q.gone) {
		q.transmit(c, q.local.pop())
		if q.behind() && q.local.n < q.Low {
			q.load(c)
		}
	}
}

// deadline returns when tick must be called.
func (q *queue) deadline() clock.Time {
	if q.local.n == 0 {
		return clock.Never
	}
	if q.gone {
		return 0
	}
	return q.free
}

// flush sends all frames that wait in the switch.
func (q *queue) flush(c *pipeline.Ctx) {
	for q.local.n > 0 {
		q.transmit(c, q.local.pop())
	}
	for q.tail.n > 0 {
		q.transmit(c, q.tail.pop())
	}
}

// behind reports whether there are frames behind those that leave next.
func (q *queue) behind() bool { return q.tail.n > 0 || !q.empty() }

// waiting returns how many frames wait in the switch.
func (q *queue) waiting() int { return q.local.n + q.tail.n }

// idle reports whether the queue has no frame.
func (q *queue) idle() bool { return q.waiting() == 0 && q.empty() }
