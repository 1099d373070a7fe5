package serve

import (
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// posts is the daemon's side of a ring of work requests. head is the daemon's own position; the
// position in shared memory is only a copy for the application.
type posts struct {
	q      *ring.Queue
	head   uint64
	slot   int // bytes of an entry
	maxSGE int // SGEs that a work request may have
}

// take returns how many entries wait in the ring. If the number is larger than the ring, the
// application has violated the protocol: then take disconnects it and returns 0.
func (r *posts) take(p *port) (n int) {
	waiting := r.q.Tail.Load() - r.head
	if waiting > r.q.Cap() {
		p.breaks("a producer's position is out of its ring")
		return 0
	}
	return int(waiting)
}

// finish tells the application that n entries were taken. If err is not nil, the NIC has refused an
// entry, and finish also writes the error and the entry's index.
func (r *posts) finish(p *port, n int, err error) {
	if err != nil {
		index, detail := indexOf(err), err.Error()
		var op *verbs.OpError
		if errors.As(err, &op) {
			detail = op.Op + "\x00" + op.Detail
		}
		r.q.Refuse(r.head+uint64(index), proto.Code(err), detail)
		p.posts += uint64(index)
	} else {
		p.posts += uint64(n)
	}
	r.head += uint64(n)
	r.q.Head.Store(r.head)
	p.wakeIf(r.q)
}

// room returns memory for copies of n entries: slot bytes and sges SGEs for each.
func (s *scratch) room(n, slot, sges int) (bytes []byte, pieces []verbs.SGE) {
	if len(s.bytes) < n*slot {
		s.bytes = make([]byte, n*slot)
	}
	if len(s.sges) < n*sges {
		s.sges = make([]verbs.SGE, n*sges)
	}
	if s.sends == nil {
		s.sends, s.recvs = make([]verbs.SendWR, ring.MaxPosts), make([]verbs.RecvWR, ring.MaxPosts)
	}
	return s.bytes, s.sges
}

// malformed is the error for an entry that cannot be decoded.
func malformed(op string, index int) error {
	return &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Index: index, Detail: "malformed entry"}
}

// qpPort is the pump's part of an application's queue pair: the engine's queue pair, and the
// rings from which the pump posts sends and receives.
type qpPort struct {
	qp   *engine.QP
	send posts
	// published is the value that the daemon has last written to the send ring's word Done; see
	// ring.Queue.
	published uint64
	recv      *posts // nil if the queue pair uses a shared receive queue
}

// rung posts the work requests of both rings, receives first: answers to sends may need them.
//
// If the NIC refuses an entry although the application did not wait for a refusal, the queue pair
// goes to the error state, and the entry completes with an error. Package ipc checks such entries
// before it posts them, so only an application that writes to the ring itself can cause this.
func (q *qpPort) rung(now clock.Time, p *port, out *packetio.Batch) {
	if q.recv != nil {
		q.recv.drain(p, "post recv", q.qp.PostRecv)
	}
	for n := q.send.take(p); n > 0; {
		taken, err := q.post(now, p, n, out)
		if taken == n || isClosed(err) || !q.early(p, taken) {
			q.send.finish(p, n, err)
			break
		}
		q.send.finish(p, taken, nil)
		q.send.finish(p, 1, nil)
		q.qp.FailSend(now, p.c.s.pump.scratch.sends[taken].ID, err, out)
		n -= taken + 1
	}
	if done := q.send.head - uint64(q.qp.Sending()); done != q.published {
		q.published = done
		q.send.q.Done.Store(done)
	}
}

// early reports whether the application posted the entry without waiting for a possible refusal
// (see ring.Early). index is the place of the entry among those that post has just copied.
func (q *qpPort) early(p *port, index int) bool {
	return ring.Early(p.c.s.pump.scratch.bytes[index*q.send.slot:])
}

// post passes n send work requests to the engine, and returns how many the engine took. If these
// are not all, err says why the next one was refused.
func (q *qpPort) post(now clock.Time, p *port, n int, out *packetio.Batch) (taken int, err error) {
	r, s := &q.send, &p.c.s.pump.scratch
	pieces := r.maxSGE + 1
	bytes, sges := s.room(n, r.slot, pieces)
	var bad error
	good := n
	for i := range n {
		wr := &s.sends[i]
		ah, ok := ring.Send(r.q.Slot(r.head+uint64(i)), bytes[i*r.slot:(i+1)*r.slot], wr, sges[i*pieces:(i+1)*pieces])
		if !ok {
			good, bad = i, malformed("post send", i)
			break
		}
		if ah == 0 {
			continue
		}
		handle := p.ahs[ah]
		if handle == nil {
			good = i
			bad = &verbs.OpError{Op: "post send", Err: verbs.ErrInvalid, Index: i, Detail: "no such address handle"}
			break
		}
		wr.AH = handle
	}
	if p.ctl.Asks.Load() != 0 && good > 0 && !q.early(p, 0) { // the application waits for the answer
		if allowed, err := q.qp.AllowPost(now, good); err != nil {
			good, bad = allowed, err
		}
	}
	if err := q.qp.PostSend(now, s.sends[:good], out); err != nil {
		return indexOf(err), err
	}
	return good, bad
}

// indexOf returns the index of the refused work request that an error names.
func indexOf(err error) int {
	var op *verbs.OpError
	if errors.As(err, &op) {
		return op.Index
	}
	return 0
}

// drain takes the receives that wait in the ring, and passes them to the function post.
func (r *posts) drain(p *port, op string, post func([]verbs.RecvWR) error) {
	n := r.take(p)
	if n == 0 {
		return
	}
	s := &p.c.s.pump.scratch
	pieces := r.maxSGE + 1
	bytes, sges := s.room(n, r.slot, pieces)
	good := n
	for i := range n {
		if !ring.Recv(r.q.Slot(r.head+uint64(i)), bytes[i*r.slot:(i+1)*r.slot], &s.recvs[i], sges[i*pieces:(i+1)*pieces]) {
			good = i
			break
		}
	}
	err := post(s.recvs[:good])
	if err == nil && good < n {
		err = malformed(op, good)
	}
	r.finish(p, n, err)
}

// srqPort is the pump's part of an application's shared receive queue: the engine's queue, and
// the ring from which the pump posts receives.
type srqPort struct {
	srq  *engine.SRQ
	recv posts
}

func (q *srqPort) rung(_ clock.Time, p *port, _ *packetio.Batch) {
	q.recv.drain(p, "post SRQ recv", q.srq.PostRecv)
}

// cqPort is the pump's part of an application's completion queue: the engine's queue, and the
// ring into which the pump copies completions. tail is the daemon's own position in this ring.
type cqPort struct {
	cq   *engine.CQ
	q    *ring.Queue
	tail uint64
}

// rung arms the queue if the application has requested an event. It also copies completions for
// which the ring had no room before.
func (c *cqPort) rung(_ clock.Time, p *port, _ *packetio.Batch) {
	c.q.Backlog.Store(0)
	if a := c.q.Arm.Load(); a != 0 {
		if q, err := c.cq.Queue(); err == nil {
			q.Arm(a == 2)
		}
		c.q.Arm.Store(0)
		p.wakeIf(c.q)
	}
	c.move(p)
}

// move copies completions into the ring as far as there is room. The others stay in the NIC's
// completion queue, which overruns when it is full.
func (c *cqPort) move(p *port) {
	q, err := c.cq.Queue()
	if err != nil || p.broken != "" {
		return
	}
	s := &p.c.s.pump.scratch
	moved, full := false, 0
	for q.Len() > 0 {
		head := c.q.Head.Load()
		used := c.tail - head
		if used > c.q.Cap() {
			p.breaks("a consumer's position is out of its ring")
			return
		}
		if used == c.q.Cap() {
			c.q.Backlog.Store(1)
			if full++; full > 2 || c.q.Head.Load() == head {
				break // the application rings the bell when it has made room
			}
			continue
		}
		n := q.Poll(s.wcs[:min(uint64(len(s.wcs)), c.q.Cap()-used)])
		for i := range n {
			ring.PutWC(c.q.Slot(c.tail+uint64(i)), &s.wcs[i])
		}
		c.tail += uint64(n)
		p.wcs += uint64(n)
		c.q.Tail.Store(c.tail)
		moved = true
	}
	if q.Fired() {
		c.q.Fired.Store(1)
		moved = true
	}
	if moved {
		p.wakeIf(c.q)
	}
}

// accessPort is the pump's part of the ring by which an application makes the daemon load and
// store words of regions; see ring.Access.
type accessPort struct {
	q    *ring.Queue
	head uint64
}

func (a *accessPort) rung(_ clock.Time, p *port, _ *packetio.Batch) {
	n := a.q.Tail.Load() - a.head
	if n > a.q.Cap() {
		p.breaks("a producer's position is out of the ring of memory accesses")
		return
	}
	for range n {
		v, err := p.access(ring.GetAccess(a.q.Slot(a.head)))
		if err != nil {
			a.q.Refuse(a.head, proto.Code(err), err.Error())
		}
		a.q.Value.Store(v)
		a.head++
	}
	a.q.Head.Store(a.head)
	p.wakeIf(a.q)
}

// access executes one load or store of a word. It returns the loaded value.
func (p *port) access(a ring.Access) (uint64, error) {
	m := p.mrs[a.MR]
	if m == nil {
		return 0, malformed("access MR", 0)
	}
	r, err := m.Region()
	switch {
	case err != nil:
		return 0, err
	case a.Offset != int64(int(a.Offset)):
		return 0, malformed("access MR", 0)
	case a.Store:
		return 0, r.Store64(int(a.Offset), a.Value)
	}
	return r.Load64(int(a.Offset))
}
