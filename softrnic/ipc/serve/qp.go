package serve

import (
	"cmp"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
)

// qpInit converts the attributes of a new queue pair: it replaces handles by the objects.
func (x queues) qpInit(op string, a *proto.CreateQP) (init verbs.QPInit, err error) {
	init = verbs.QPInit{
		Type: a.Type, MaxSendWR: a.MaxSendWR, MaxRecvWR: a.MaxRecvWR, MaxSGE: a.MaxSGE, MaxInline: a.MaxInline, SignalAll: a.SignalAll,
	}
	for h, cq := range map[*uint32]*verbs.CQ{&a.SendCQ: &init.SendCQ, &a.RecvCQ: &init.RecvCQ} {
		o, err := x.objects.queue(op, *h, kindCQ)
		if err != nil {
			return init, err
		}
		*cq = o.cq
	}
	if a.SRQ != 0 {
		o, err := x.objects.queue(op, a.SRQ, kindSRQ)
		if err != nil {
			return init, err
		}
		init.SRQ = o.srq
	}
	return init, nil
}

func (x queues) createQP(a proto.CreateQP) (any, []int, error) {
	const op = "create QP"
	pd, err := get[verbs.PD](x.objects, op, a.PD)
	if err != nil {
		return nil, nil, err
	}
	init, err := x.qpInit(op, &a)
	if err != nil {
		return nil, nil, err
	}
	sends, recvs := cmp.Or(a.MaxSendWR, 128), cmp.Or(a.MaxRecvWR, 128)
	sge, inline := cmp.Or(a.MaxSGE, 4), cmp.Or(a.MaxInline, 256)
	queued := bounded(sends)*(wrBytes+bounded(sge)*sgeBytes+bounded(inline)) + bounded(recvs)*(wrBytes+bounded(sge)*sgeBytes)
	qp, err := made(x.objects, op, kindQP, queued, func() (verbs.QP, error) { return pd.CreateQP(init) })
	if err != nil {
		return nil, nil, err
	}
	e := verbsengine.EngineQP(qp)
	slots := min(max(sends, recvs), ring.MaxPosts)
	sendSlot, recvSlot := ring.SendSlot(sge, inline), ring.RecvSlot(sge)
	out := proto.Queue{
		Number: uint32(qp.QPN()), Slots: slots, SendSlot: sendSlot, Length: ring.QueueLen(slots, sendSlot),
		MaxSendWR: sends, MaxSGE: sge, MaxInline: inline,
	}
	sendLen := out.Length
	if a.SRQ == 0 {
		out.RecvSlot = recvSlot
		out.Length += ring.QueueLen(slots, recvSlot)
	}
	return x.publish(&queueObject{qp: qp, kind: kindQP, queued: queued}, qp.Destroy, out, func(b []byte) belled {
		q := &qpPort{qp: e, send: posts{q: ring.NewQueue(b, slots, sendSlot), slot: sendSlot, maxSGE: sge}}
		if a.SRQ == 0 {
			q.recv = &posts{q: ring.NewQueue(b[sendLen:], slots, recvSlot), slot: recvSlot, maxSGE: sge}
		}
		return q
	}, func(p *port) { x.pump.qps[qp.QPN()] = p })
}

func (x queues) queryQP(a proto.Handle) (any, error) {
	o, err := x.objects.queue("query QP", a.H, kindQP)
	if err != nil {
		return nil, err
	}
	return o.qp.Query()
}

func (x queues) modifyQP(a proto.ModifyQP) (any, error) {
	const op = "modify QP"
	o, err := x.objects.queue(op, a.H, kindQP)
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
	case proto.SameState:
		err = o.qp.Modify(a.Attr)
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
	if err != nil {
		verbsengine.Deny(o.qp, err)
	}
	return nil, err
}

func (x queues) destroyQP(a proto.Handle) (any, error) {
	return nil, x.on("destroy QP", a.H, kindQP, func(o *queueObject) error {
		return x.retire(a.H, o, o.qp.Destroy(), func(p *port) { disown(x.pump.qps, o.qp.QPN(), p) })
	})
}
