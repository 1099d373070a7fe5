package verbsengine

import (
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// qp is the application's handle of a queue pair.
type qp struct {
	pd *pd
	qp *engine.QP
}

var _ verbs.RingQP = (*qp)(nil)

// QPN returns the queue pair number. It may be called after Destroy.
func (q *qp) QPN() wire.QPN { return q.qp.Num() }

func (q *qp) Query() (verbs.QPAttr, error) { return ask(q.pd.ctx, q.qp.Query) }

func (q *qp) step(f func(s step) error) error { return q.pd.ctx.step(f) }

func (q *qp) ToInit(a verbs.ToInit) error {
	return q.step(func(step) error { return q.qp.ToInit(a) })
}

func (q *qp) ToRTR(a verbs.ToRTR) error {
	return q.step(func(s step) error { return q.qp.ToRTR(s.now, a) })
}

func (q *qp) ToRTS(a verbs.ToRTS) error {
	return q.step(func(s step) error { return q.qp.ToRTS(s.now, a) })
}

func (q *qp) Modify(a verbs.QPModify) error {
	return q.step(func(s step) error { return q.qp.Modify(s.now, a) })
}

func (q *qp) ToSQD() error { return q.step(func(s step) error { return q.qp.ToSQD(s.now, s.out) }) }

func (q *qp) ResumeRTS() error {
	return q.step(func(s step) error { return q.qp.ResumeRTS(s.now, s.out) })
}

func (q *qp) ToError() error { return q.step(func(s step) error { return q.qp.ToError(s.now, s.out) }) }

func (q *qp) ToReset() error { return q.step(func(step) error { return q.qp.ToReset() }) }

// PostSend queues work requests. It calls Enter once for the whole list, and their frames are sent
// together.
func (q *qp) PostSend(wr ...verbs.SendWR) error {
	good, foreign := q.checkAHs(wr)
	now, _, out := q.pd.ctx.shell.Enter()
	defer q.pd.ctx.shell.Leave()
	q.pd.ctx.posted(len(wr))
	allowed, refused := q.qp.AllowPost(now, good)
	if err := q.qp.PostSend(now, wr[:allowed], out); err != nil {
		return err
	}
	if refused != nil {
		return refused
	}
	return foreign
}

func (q *qp) PostRecv(wr ...verbs.RecvWR) error {
	q.pd.ctx.shell.Enter()
	defer q.pd.ctx.shell.Leave()
	q.pd.ctx.posted(len(wr))
	return q.qp.PostRecv(wr)
}

func (q *qp) UseRing(init verbs.RingInit) error {
	return q.step(func(step) error { return q.qp.UseRing(init) })
}

func (q *qp) Doorbell(limit uint32) error {
	now, _, _ := q.pd.ctx.shell.Enter()
	defer q.pd.ctx.shell.Leave()
	return q.qp.Doorbell(now, limit)
}

func (q *qp) AttachMulticast(group verbs.GID) error {
	return q.step(func(s step) error { return q.qp.AttachMulticast(s.now, group, s.out) })
}

func (q *qp) DetachMulticast(group verbs.GID) error {
	return q.step(func(s step) error { return q.qp.DetachMulticast(group, s.out) })
}

func (q *qp) Destroy() error { return end(q.pd.ctx, q.pd.qps, q, q.qp.Destroy) }

// Deny makes the queue pair note that a verb on it was refused. A handle of another kind, and a queue
// pair that was destroyed, is ignored.
func Deny(of verbs.QP, why error) {
	if q, ok := of.(*qp); ok {
		_ = q.pd.ctx.step(func(s step) error { q.qp.Deny(s.now, why); return nil })
	}
}
