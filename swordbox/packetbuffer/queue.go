package packetbuffer

import (
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/framering"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// queue is the queue of a port. It exists from when its host gets a rule until that rule is removed
// and no frame is left.
type queue struct {
	Layout
	id    string // ID of the rule
	port  int
	place pipeline.Place // place among the queues of the port, also those of the other mode
	// gone is true if the rule of the queue was removed.
	gone bool
	// local has the frames that leave next. tail has frames that wait until a server of the ring
	// can take them; they leave after the frames in the ring.
	local, tail fifo
	free        clock.Time // when the port has sent the frames that it was given
	was         int64      // the former rate, by which free was computed; 0 means that the rate has not changed
	more        bool       // load could emit no more packets in this step: the next step continues
	ring        framering.Ring
	// links are the connections to the servers of the ring, in the order of Layout.Servers.
	links []*Link
	// rivals are the queues of other ports whose rings overlap the ring of this queue in memory.
	// Rings of rules in force never overlap, so of two such queues one belongs to a removed rule.
	// At most one of the two rings has frames.
	rivals []*queue
	stats  Stats
	// stores and loads measure how fast frames go to the ring, and come back.
	stores, loads meter
}

// Reasons why the switch drops a frame that was to leave through a port with a queue.
const (
	ReasonFull    pipeline.Reason = "ring full"
	ReasonBlocked pipeline.Reason = "too many wait for the ring"
	ReasonLong    pipeline.Reason = "too long for the ring"
)

// lateness bounds what the queue makes up for when tick is called late. It sends at once what the
// port could have sent since the deadline, but at most what the port can send in the time lateness.
const lateness = time.Millisecond

// unlimited reports whether frames leave without a limit of the rate, because no rule limits the
// port now.
func (q *queue) unlimited() bool { return q.gone && q.place.Newest() }

// room reports whether a frame may wait for the port in the switch.
func (q *queue) room(f *packetio.Frame) bool {
	return q.local.takes(len(f.Data), q.High) || q.unlimited() && q.place.Oldest()
}

// accept takes a frame for the port. The frame is sent at once, waits in the switch, goes to the
// ring, or is dropped.
func (q *queue) accept(c *pipeline.Ctx, f packetio.Frame) {
	q.stats.Frames++
	switch {
	case q.empty() && q.tail.n == 0 && q.room(&f):
		q.enqueue(c, f)
		return
	case q.tail.n > 0 || !q.store(c, f):
		if !q.tail.takes(len(f.Data), q.High) {
			q.stats.Blocked++
			c.Drop(q.port, ReasonBlocked, f)
			return
		}
		q.tail.push(f)
	}
	q.load(c)
}

// store puts a frame into the ring, or drops it. It returns false if the frame must wait: no server
// can take it at present, an earlier queue of the port still has frames, or the ring of another
// port, which overlaps this ring in memory (rivals), still has frames.
func (q *queue) store(c *pipeline.Ctx, f packetio.Frame) bool {
	if !q.place.Oldest() || slices.ContainsFunc(q.rivals, func(o *queue) bool { return !o.empty() }) {
		return false
	}
	switch q.ring.Store(c, f) {
	case framering.Stored:
		q.stats.Stored++
		q.stores.began(c.Now)
		q.stores.moved(c.Now, len(f.Data))
	case framering.Full:
		q.stats.Full++
		c.Drop(q.port, ReasonFull, f)
	case framering.Blocked:
		return false
	case framering.Long:
		q.stats.Long++
		c.Drop(q.port, ReasonLong, f)
	}
	return true
}

// load moves frames from the tail to the ring and reads frames back from the ring, until it can
// move none.
func (q *queue) load(c *pipeline.Ctx) {
	for moved := true; moved; {
		moved = q.storeTail(c)
		before := q.ring.Read()
		if q.local.below(q.Low) {
			if q.ring.Ask(c); !q.empty() {
				q.loads.began(c.Now)
			}
		}
		q.comeBack(c)
		moved = moved || q.ring.Read() != before
	}
	q.more = q.behind() && c.EmitsLeft() == 0
}

// storeTail stores the frames of the tail in the ring. If the ring is empty, these frames wait for
// the port instead, as far as there is room. It reports whether a frame moved.
func (q *queue) storeTail(c *pipeline.Ctx) (moved bool) {
	for q.tail.n > 0 {
		f := q.tail.first()
		switch {
		case q.empty() && q.room(&f):
			q.enqueue(c, q.tail.pop())
		case q.store(c, f):
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
	for f, number, ok := q.ring.Next(); ok; f, number, ok = q.ring.Next() {
		q.stats.Lost += uint64(q.ring.Count(number))
		if len(f.Data) < framering.MinFrame {
			q.stats.Lost++
			continue
		}
		q.stats.Loaded++
		q.loads.moved(c.Now, len(f.Data))
		q.enqueue(c, f)
	}
	if q.empty() {
		q.stats.Lost += uint64(q.ring.End())
	}
}

// enqueue sends a frame if the port is free and no other frame waits. Otherwise the frame waits in
// the switch.
func (q *queue) enqueue(c *pipeline.Ctx, f packetio.Frame) {
	q.pace(c.Now)
	if q.local.n == 0 && q.place.Oldest() && (q.free <= c.Now || q.unlimited()) {
		q.free = c.Now
		q.transmit(c, f)
		return
	}
	q.local.push(f)
}

// pace computes the field free (when the port will have sent the frames that it was given) again,
// if the rate has changed: what the port has not sent yet leaves at the new rate.
func (q *queue) pace(now clock.Time) {
	if left := q.free.Sub(now); q.was > 0 && left > 0 {
		q.free = now.Add(time.Duration(int64(left) * q.was / q.Rate))
	}
	q.was = 0
}

func (q *queue) transmit(c *pipeline.Ctx, f packetio.Frame) {
	if !q.unlimited() {
		const bits = 8
		q.free = q.free.Add(time.Duration(int64(len(f.Data)) * bits * int64(time.Second) / q.Rate))
	}
	if c.Transmit(q.port, f, "queued by the switch") {
		q.stats.Sent++
	} else {
		q.stats.Down++
	}
}

// tick sends the frames whose time has come.
func (q *queue) tick(c *pipeline.Ctx) {
	q.pace(c.Now)
	q.free = max(q.free, c.Now.Add(-lateness))
	for q.local.n > 0 && (q.free <= c.Now || q.unlimited()) {
		q.transmit(c, q.local.pop())
		if q.behind() && q.local.below(q.Low) {
			q.load(c)
		}
	}
	if q.stuck() || q.more {
		q.load(c)
	}
}

// deadline returns when tick must be called: never, while an earlier queue of the port has frames.
func (q *queue) deadline() clock.Time {
	switch {
	case !q.place.Oldest():
		return clock.Never
	case q.stuck() || q.more || q.was > 0 || q.local.n > 0 && q.unlimited():
		return 0
	case q.local.n == 0:
		return clock.Never
	}
	return q.free
}

// stuck reports whether frames wait for the ring (q.tail) and no event would move them: no frame is
// in the ring any more, because a change of rules has emptied it, and none waits for the port.
func (q *queue) stuck() bool { return q.tail.n > 0 && q.local.n == 0 && q.empty() }

// flush sends all frames of the queue that wait in the switch, and takes the queue from its port,
// so that no further frame comes to the queue. If the port still has a former queue, whose frames
// must leave first, flush does nothing.
func (q *queue) flush(c *pipeline.Ctx) {
	if !q.place.Oldest() {
		return
	}
	for q.local.n > 0 {
		q.transmit(c, q.local.pop())
	}
	for q.tail.n > 0 {
		q.transmit(c, q.tail.pop())
	}
	q.place.Leave()
}

// behind reports whether there are frames that leave after those in local: frames in the ring or in
// the tail.
func (q *queue) behind() bool { return q.tail.n > 0 || !q.empty() }

// waiting returns how many frames wait in the switch.
func (q *queue) waiting() int { return q.local.n + q.tail.n }

func (q *queue) idle() bool { return q.waiting() == 0 && q.empty() }

func (q *queue) empty() bool { return q.ring.Empty() }
