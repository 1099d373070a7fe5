package serve

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/binding"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// qpInit resolves the handles in the attributes of a queue pair.
func (c *client) qpInit(op string, a *proto.CreateQP) (init verbs.QPInit, err error) {
	init = verbs.QPInit{
		Type: a.Type, MaxSendWR: a.MaxSendWR, MaxRecvWR: a.MaxRecvWR, MaxSGE: a.MaxSGE, MaxInline: a.MaxInline, SignalAll: a.SignalAll,
	}
	for h, cq := range map[*uint32]*verbs.CQ{&a.SendCQ: &init.SendCQ, &a.RecvCQ: &init.RecvCQ} {
		o, err := c.queue(op, *h, kindCQ)
		if err != nil {
			return init, err
		}
		*cq = o.cq
	}
	if a.SRQ != 0 {
		o, err := c.queue(op, a.SRQ, kindSRQ)
		if err != nil {
			return init, err
		}
		init.SRQ = o.srq
	}
	return init, nil
}

// createQP makes a queue pair.
func (c *client) createQP(a proto.CreateQP) (any, []int, error) {
	const op = "create QP"
	pd, err := get[*pdObject](c, op, a.PD)
	if err != nil {
		return nil, nil, err
	}
	init, err := c.qpInit(op, &a)
	if err != nil {
		return nil, nil, err
	}
	sends, recvs := orDefault(a.MaxSendWR, 128), orDefault(a.MaxRecvWR, 128)
	sge, inline := orDefault(a.MaxSGE, 4), orDefault(a.MaxInline, 256)
	queued := bounded(sends)*(wrBytes+bounded(sge)*sgeBytes+bounded(inline)) + bounded(recvs)*(wrBytes+bounded(sge)*sgeBytes)
	if err := c.reserve(op, kindQP, 0, queued); err != nil {
		return nil, nil, err
	}
	qp, err := pd.pd.CreateQP(init)
	if err != nil {
		c.giveBack(kindQP, 0, queued)
		return nil, nil, err
	}
	e := binding.EngineQP(qp)
	slots := min(max(sends, recvs), ring.MaxPosts)
	sendSlot, recvSlot := ring.SendSlot(sge, inline), ring.RecvSlot(sge)
	out := proto.Queue{Number: uint32(qp.QPN()), Slots: slots, SendSlot: sendSlot, Length: ring.QueueLen(slots, sendSlot)}
	sendLen := out.Length
	if a.SRQ == 0 {
		out.RecvSlot = recvSlot
		out.Length += ring.QueueLen(slots, recvSlot)
	}
	res, fds, err := c.publish(&queueObject{qp: qp, kind: kindQP, queued: queued}, out, func(b []byte) belled {
		q := &qpPort{qp: e, send: posts{q: ring.NewQueue(b, slots, sendSlot), slot: sendSlot, maxSGE: sge}}
		if a.SRQ == 0 {
			q.recv = &posts{q: ring.NewQueue(b[sendLen:], slots, recvSlot), slot: recvSlot, maxSGE: sge}
		}
		return q
	}, func(p *port) { c.s.qps[qp.QPN()] = p })
	if err != nil {
		c.giveBack(kindQP, 0, queued)
		return nil, nil, errors.Join(err, qp.Destroy())
	}
	return res, fds, nil
}

func (c *client) queryQP(a proto.Handle) (any, error) {
	o, err := c.queue("query QP", a.H, kindQP)
	if err != nil {
		return nil, err
	}
	attr, err := o.qp.Query()
	return attr, err
}

func (c *client) modifyQP(a proto.ModifyQP) (any, error) {
	const op = "modify QP"
	o, err := c.queue(op, a.H, kindQP)
	if err != nil {
		return nil, err
	}
	switch a.To {
	case proto.ToInit:
		err = o.qp.ToInit(a.Init)
	case proto.ToRTR:
		err = o.qp.ToRTR(a.RTR)
	case proto.ToRTS:
		err = o.qp.ToRTS(a.RTS)
	case proto.ToSQD:
		err = o.qp.ToSQD()
	case proto.ResumeRTS:
		err = o.qp.ResumeRTS()
	case proto.ToError:
		err = o.qp.ToError()
	case proto.ToReset:
		err = o.qp.ToReset()
	default:
		err = &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: fmt.Sprintf("transition %.20q", string(a.To))}
	}
	return nil, err
}

func (c *client) destroyQP(a proto.Handle) (any, error) {
	o, err := c.queue("destroy QP", a.H, kindQP)
	if err != nil {
		return nil, err
	}
	if err = o.qp.Destroy(); !gone(err) {
		return nil, err
	}
	n := o.qp.QPN()
	return nil, errors.Join(err, c.retire(a.H, o, func(p *port) {
		if c.s.qps[n] == p {
			delete(c.s.qps, n)
		}
	}))
}
