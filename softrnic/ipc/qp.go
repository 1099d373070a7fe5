package ipc

import (
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

type qp struct {
	pd         *pd
	h          uint32
	num        wire.QPN
	sendCQ     *cq
	recvCQ     *cq
	bytes      []byte
	send, recv poster // recv has no ring if the queue pair uses a shared receive queue
	early      earlyPosts
}

func (p *pd) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	const op = "create QP"
	send, err := p.cq(op, "send", init.SendCQ)
	if err != nil {
		return nil, err
	}
	recv, err := p.cq(op, "receive", init.RecvCQ)
	if err != nil {
		return nil, err
	}
	a := proto.CreateQP{
		PD: p.h, Type: init.Type, SendCQ: send.h, RecvCQ: recv.h,
		MaxSendWR: init.MaxSendWR, MaxRecvWR: init.MaxRecvWR, MaxSGE: init.MaxSGE, MaxInline: init.MaxInline, SignalAll: init.SignalAll,
	}
	if init.SRQ != nil {
		s, ok := init.SRQ.(*srq)
		if !ok || s == nil || s.pd.ctx != p.ctx {
			return nil, verbs.Errorf(op, verbs.ErrInvalid, "the SRQ was not made by this context")
		}
		a.SRQ = s.h
	}
	var r proto.Queue
	bytes, err := p.ctx.callMemory(proto.OpCreateQP, a, &r, &r.Length, undo{proto.OpDestroyQP, &r.H})
	if err != nil {
		return nil, err
	}
	q := &qp{pd: p, h: r.H, num: r.QPN(), sendCQ: send, recvCQ: recv, bytes: bytes, early: newEarlyPosts(init.Type, r)}
	q.send = poster{ctx: p.ctx, bell: r.Bell, q: ring.NewQueue(bytes, r.Slots, r.SendSlot)}
	q.recv = poster{ctx: p.ctx, bell: r.Bell}
	if r.RecvSlot != 0 {
		q.recv.q = ring.NewQueue(bytes[ring.QueueLen(r.Slots, r.SendSlot):], r.Slots, r.RecvSlot)
	}
	p.ctx.maps.remember(q)
	return q, nil
}

// unmap is called when the context is closed.
func (q *qp) unmap() {
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	q.recv.mu.Lock()
	defer q.recv.mu.Unlock()
	q.release()
}

// release unmaps the rings. The caller holds the locks of send and recv.
func (q *qp) release() {
	q.send.closed, q.recv.closed = true, true
	_ = ring.Unmap(q.bytes) // cannot fail: it is mapped
	q.bytes = nil
}

// cq checks that a completion queue belongs to this context.
func (p *pd) cq(op, which string, c verbs.CQ) (*cq, error) {
	o, ok := c.(*cq)
	if !ok || o == nil || o.ctx != p.ctx {
		return nil, verbs.Errorf(op, verbs.ErrInvalid, "the %s CQ was not made by this context", which)
	}
	return o, nil
}

func (q *qp) QPN() wire.QPN { return q.num }

func (q *qp) Query() (a verbs.QPAttr, err error) {
	err = q.pd.ctx.session.call(proto.OpQueryQP, proto.Handle{H: q.h}, &a)
	return a, q.send.state("query QP", err)
}

func (q *qp) modify(m proto.ModifyQP) error {
	m.H = q.h
	return q.send.state("modify QP", q.pd.ctx.session.call(proto.OpModifyQP, m, nil))
}

func (q *qp) ToInit(a verbs.ToInit) error { return q.modify(proto.ModifyQP{To: proto.ToInit, Init: a}) }

func (q *qp) ToRTR(a verbs.ToRTR) error { return q.modify(proto.ModifyQP{To: proto.ToRTR, RTR: a}) }

func (q *qp) ToRTS(a verbs.ToRTS) error { return q.modify(proto.ModifyQP{To: proto.ToRTS, RTS: a}) }

func (q *qp) Modify(a verbs.QPModify) error {
	return q.modify(proto.ModifyQP{To: proto.SameState, Attr: a})
}

func (q *qp) ToSQD() error     { return q.modify(proto.ModifyQP{To: proto.ToSQD}) }
func (q *qp) ResumeRTS() error { return q.modify(proto.ModifyQP{To: proto.ResumeRTS}) }
func (q *qp) ToError() error   { return q.modify(proto.ModifyQP{To: proto.ToError}) }

// ToReset removes the work requests and the completions of the queue pair. It holds the lock of the
// send ring meanwhile, so that no other thread posts a send. Such a post could return early, and
// then the NIC would refuse it.
func (q *qp) ToReset() error {
	q.send.mu.Lock()
	err := q.pd.ctx.session.call(proto.OpModifyQP, proto.ModifyQP{H: q.h, To: proto.ToReset}, nil)
	q.early.sends = false
	q.send.mu.Unlock()
	if err = q.send.state("modify QP", err); err == nil {
		q.purge()
	}
	return err
}

func (q *qp) purge() {
	q.sendCQ.purge(q.num)
	if q.recvCQ != q.sendCQ {
		q.recvCQ.purge(q.num)
	}
}

func (q *qp) AttachMulticast(group verbs.GID) error {
	return q.send.state("attach multicast", q.pd.ctx.session.call(proto.OpAttach, proto.Multicast{H: q.h, Group: group}, nil))
}

func (q *qp) DetachMulticast(group verbs.GID) error {
	return q.send.state("detach multicast", q.pd.ctx.session.call(proto.OpDetach, proto.Multicast{H: q.h, Group: group}, nil))
}

func (q *qp) PostSend(wr ...verbs.SendWR) error {
	const op = "post send"
	p := &q.send
	if err := p.begin(op); err != nil {
		return err
	}
	defer p.end()
	if len(wr) == 0 {
		return nil
	}
	if q.sure(wr) {
		q.postEarly(wr)
		return nil
	}
	if !p.ctx.consumed(p.q, p.tail, p.bell) { // waits until the daemon has taken the lists that were posted early
		return p.ctx.session.over(op)
	}
	for done := 0; done < len(wr); {
		n, foreign := 0, false
		for ; n < int(p.q.Cap()) && done+n < len(wr); n++ {
			w := &wr[done+n]
			h := uint32(0)
			if w.AH != nil {
				a, ok := w.AH.(*ah)
				if foreign = !ok || a == nil || a.pd.ctx != q.pd.ctx; foreign {
					break
				}
				h = a.h
			}
			ring.PutSend(p.q.Slot(p.tail+uint64(n)), w, h)
		}
		if n > 0 {
			if err := p.post(op, n); err != nil {
				return shifted(err, done)
			}
			q.early.sends = true
		}
		done += n
		if foreign {
			return &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Index: done, Detail: "the address handle was not made by this context"}
		}
	}
	return nil
}

func (q *qp) PostRecv(wr ...verbs.RecvWR) error {
	if q.recv.q == nil && len(wr) > 0 {
		return verbs.Errorf("post recv", verbs.ErrInvalid, "the queue pair takes its receives from a shared receive queue; post to that")
	}
	return q.recv.postRecv("post recv", wr)
}

func (q *qp) Destroy() error {
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	q.recv.mu.Lock()
	defer q.recv.mu.Unlock()
	err := q.pd.ctx.destroyQueue("destroy QP", proto.OpDestroyQP, q.h, q.send.closed, q)
	if err == nil {
		q.purge()
	}
	return err
}

type srq struct {
	pd    *pd
	h     uint32
	bytes []byte
	recv  poster
}

func (p *pd) CreateSRQ(init verbs.SRQInit) (verbs.SRQ, error) {
	var r proto.Queue
	bytes, err := p.ctx.callMemory(proto.OpCreateSRQ, proto.CreateSRQ{PD: p.h, Init: init}, &r, &r.Length, undo{proto.OpDestroySRQ, &r.H})
	if err != nil {
		return nil, err
	}
	s := &srq{pd: p, h: r.H, bytes: bytes}
	s.recv = poster{ctx: p.ctx, bell: r.Bell, q: ring.NewQueue(bytes, r.Slots, r.RecvSlot)}
	p.ctx.maps.remember(s)
	return s, nil
}

// unmap is called when the context is closed.
func (s *srq) unmap() {
	s.recv.mu.Lock()
	defer s.recv.mu.Unlock()
	s.release()
}

// release unmaps the ring. The caller holds the lock of recv.
func (s *srq) release() {
	s.recv.closed = true
	_ = ring.Unmap(s.bytes) // cannot fail: it is mapped
	s.bytes = nil
}

func (s *srq) Query() (a verbs.SRQAttr, err error) {
	err = s.pd.ctx.session.call(proto.OpQuerySRQ, proto.Handle{H: s.h}, &a)
	return a, s.recv.state("query SRQ", err)
}

func (s *srq) PostRecv(wr ...verbs.RecvWR) error { return s.recv.postRecv("post SRQ recv", wr) }

func (s *srq) SetLimit(n int) error {
	return s.recv.state("modify SRQ", s.pd.ctx.session.call(proto.OpLimitSRQ, proto.Limit{H: s.h, N: n}, nil))
}

func (s *srq) Resize(maxWR int) error {
	return s.recv.state("modify SRQ", s.pd.ctx.session.call(proto.OpResizeSRQ, proto.Limit{H: s.h, N: maxWR}, nil))
}

func (s *srq) Destroy() error {
	s.recv.mu.Lock()
	defer s.recv.mu.Unlock()
	return s.pd.ctx.destroyQueue("destroy SRQ", proto.OpDestroySRQ, s.h, s.recv.closed, s)
}

type ah struct {
	pd     *pd
	h      uint32
	number uint32
}

func (p *pd) CreateAH(a verbs.AHAttr) (verbs.AH, error) {
	var r proto.Address
	if err := p.ctx.session.call(proto.OpCreateAH, proto.CreateAH{PD: p.h, Attr: a}, &r); err != nil {
		return nil, err
	}
	return &ah{pd: p, h: r.H, number: r.Number}, nil
}

func (a *ah) Handle() uint32 { return a.number }
func (a *ah) Destroy() error { return a.pd.ctx.destroy(proto.OpDestroyAH, &a.h) }
