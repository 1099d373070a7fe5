package serve

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// This file has the pump's work on the rings of unmodified programs.

// programQP is a queue pair of a program with its send ring. head is the index of the next entry
// that the daemon passes to the engine. An entry becomes free when its work request is complete.
type programQP struct {
	qp   *engine.QP
	ring uverbs.Ring
	slot int // bytes of an entry
	sges int // SGEs that a work request may have
	head uint32
	// checked is the index behind the last entry about which the injected faults were asked. Like head, it
	// counts on at the end of the ring.
	checked uint32
	freed   uint32       // the consumer index that the daemon wrote to the ring last
	done    *programCQ   // the completion queue of sends
	recv    *receiveRing // nil if the queue pair uses a shared receive queue
	// ringed: the queue pair takes its sends from a ring in memory of the program (useRing). An entry of
	// this ring fails it.
	ringed bool
}

// sending returns how many entries of the ring the NIC has not completed.
func (q *programQP) sending() int {
	if q.ringed {
		return 0
	}
	return q.qp.Sending()
}

// rung posts the entries that wait in the ring. If the state of the queue pair does not allow sends
// yet, the entries stay in the ring.
func (q *programQP) rung(now clock.Time, p *port, out *packetio.Batch) {
	q.settle()
	waiting := min(q.ring.Between(q.head, q.ring.Producer()), q.ring.Cap()-q.sending())
	for most := ring.MaxPosts; waiting > 0; {
		taken, err := q.post(now, p, min(waiting, most), out)
		q.head += uint32(taken)
		waiting -= taken
		switch {
		case err == nil:
		case errors.Is(err, verbs.ErrState) || errors.Is(err, verbs.ErrNoSpace) || isClosed(err):
			return
		default:
			q.fail(now, err, out)
			waiting--
			most = 1 // one by one: otherwise each further refusal would make post decode the entries behind it again
		}
	}
}

// post passes n entries to the engine and returns how many the engine took.
func (q *programQP) post(now clock.Time, p *port, n int, out *packetio.Batch) (taken int, err error) {
	s := &p.c.s.pump.scratch
	bytes, sges := s.room(n, q.slot, q.sges)
	var bad error
	good := n
	for i := range n {
		wr := &s.sends[i]
		ah, ok := uverbs.Send(q.ring.Slot(q.head+uint32(i)), bytes[i*q.slot:(i+1)*q.slot], wr, sges[i*q.sges:(i+1)*q.sges])
		if !ok {
			good, bad = i, malformed("post send", i)
			break
		}
		if handle := p.ahs[ah]; ah != 0 && handle != nil {
			wr.AH = handle
		}
	}
	if err := q.qp.PostSend(now, s.sends[:good], out); err != nil {
		return indexOf(err), err
	}
	return good, bad
}

// unchecked returns the index of the first waiting entry about which the injected faults were not
// asked.
func (q *programQP) unchecked() uint32 {
	if q.checked-q.head > uint32(q.ring.Between(q.head, q.ring.Producer())) { // it is behind head, by any number of laps
		return q.head
	}
	return q.checked
}

// fail handles the entry at head, which cannot be executed: like a driver, it moves the queue pair
// to the error state and completes the entry with an error. why is the refusal.
func (q *programQP) fail(now clock.Time, why error, out *packetio.Batch) {
	id := binary.NativeEndian.Uint64(q.ring.Slot(q.head))
	q.head++
	q.qp.FailSend(now, id, why, out)
}

// settle frees the send ring entries whose work requests are complete.
func (q *programQP) settle() {
	if freed := q.head - uint32(q.sending()); freed != q.freed {
		q.freed = freed
		q.ring.SetConsumer(freed)
	}
}

// forget empties the rings. It is called when the queue pair is reset.
func (q *programQP) forget() {
	q.head = q.ring.Producer()
	q.checked = q.head
	q.freed = q.head
	q.ring.SetConsumer(q.head)
	if q.recv != nil {
		q.recv.head = q.recv.ring.Producer()
		q.recv.ring.SetConsumer(q.recv.head)
	}
}

// receiveRing is the ring of receives of a queue pair or of a shared receive queue. The program
// rings no bell for it: the NIC reads the ring when a message needs a receive. head is the
// index of the next entry to take; an entry is copied to scratch before it is decoded.
type receiveRing struct {
	port    *port
	ring    uverbs.Ring
	head    uint32
	scratch []byte
}

var _ transport.Receives = (*receiveRing)(nil)

// Next removes and returns the oldest receive. A malformed entry violates the protocol, because the
// library never writes one.
func (r *receiveRing) Next(sgl []verbs.SGE) (id uint64, nsge int, ok bool) {
	if r.Len() == 0 {
		return 0, 0, false
	}
	id, nsge, ok = uverbs.Recv(r.ring.Slot(r.head), r.scratch, sgl)
	r.head++
	r.ring.SetConsumer(r.head)
	if !ok {
		r.port.breaks("a malformed receive")
		return 0, 0, false
	}
	r.port.posts++
	return id, nsge, true
}

func (r *receiveRing) Len() int { return r.ring.Between(r.head, r.ring.Producer()) }

// programCQ is a completion queue of a program with its ring. tail is the daemon's own position in
// the ring.
type programCQ struct {
	owner
	cq      *engine.CQ
	ring    uverbs.Ring
	tail    uint32
	channel *eventQueue // nil means none
	number  uint32      // number of the channel
	told    uint32      // number of events sent to the channel, without those that are lost
	stamped bool        // completions have timestamps
	xrc     bool        // shared receive queues of XRC complete here, or did
	rings   uint32      // number of rings that the queue has had before
}

func (c *programCQ) room() int { return c.ring.Cap() - c.ring.Between(c.ring.Consumer(), c.tail) }

// fetch frees the send ring entries whose completions go to this queue, and then copies the
// completions to the program.
func (c *programCQ) fetch(p *port) {
	for _, q := range p.settled {
		if q.done == c {
			q.settle()
		}
	}
	c.move(p)
}

// move copies completions to the program as far as its ring has room. The others stay in the NIC's
// completion queue, which overruns when it is full. The caller must have freed the entries of
// completed sends, because the program may post into them as soon as it sees the completions.
func (c *programCQ) move(p *port) {
	q, err := c.cq.Queue()
	if err != nil || p.broken != "" {
		return
	}
	s := &p.c.s.pump.scratch
	for q.Len() > 0 {
		n := q.Poll(s.wcs[:min(len(s.wcs), c.room())])
		if n == 0 {
			p.c.s.pump.cram()
			break
		}
		for i := range n {
			uverbs.PutWC(c.ring.Slot(c.tail+uint32(i)), &s.wcs[i])
		}
		if c.stamped {
			c.stamp(n)
		}
		c.tail += uint32(n)
		p.wcs += uint64(n)
		c.ring.SetProducer(c.tail)
	}
	if q.Fired() && c.channel != nil && c.channel.sock != 0 {
		c.tell(p)
	}
}

// stamp writes the time to n slots. The time is when the completions are copied to the program,
// which is in the step of the NIC that has made them unless the ring was full.
func (c *programCQ) stamp(n int) {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil { // it cannot fail on Linux
		return
	}
	for i := range n {
		uverbs.PutTimestamp(c.ring.Slot(c.tail+uint32(i)), uint64(t.Nano()))
	}
}

// tell sends an event to the program's completion channel, and counts it as sent or as lost.
func (c *programCQ) tell(p *port) {
	if c.channel.send(binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint64(nil, c.user), c.tag)) {
		c.told++
	} else {
		p.lost++
	}
}
