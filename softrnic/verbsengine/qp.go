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

func (q *qp) Query() (verbs.QPAttr, error) {
	q.pd.ctx.shell.Enter()
	defer q.pd.ctx.shell.Leave()
	return q.qp.Query()
}

func (q *qp) ToInit(a verbs.ToInit) error {
	q.pd.ctx.shell.Enter()
	defer q.pd.ctx.shell.Leave()
	return q.qp.ToInit(a)
}

func (q *qp) ToRTR(a verbs.ToRTR) error {
	now, _, _ := q.pd.ctx.shell.Enter()
	defer q.pd.ctx.shell.Leave()
	return q.qp.ToRTR(now, a)
}

func (q *qp) ToRTS(a verbs.ToRTS) error {
	now, _, _ := q.pd.ctx.shell.Enter()
	defer q.pd.ctx.shell.Leave()
	return q.qp.ToRTS(now, a)
}

func (q *qp) Modify(a verbs.QPModify) error {
	now, _, _ := q.pd.ctx.shell.Enter()
	defer q.pd.ctx.shell.Leave()
	return q.qp.Modify(now, a)
}

func (q *qp) ToSQD() error {
	now, _, out := q.pd.ctx.shell.Enter()
	defer q.pd.ctx.shell.Leave()
	return q.qp.ToSQD(now, out)
}

func (q *qp) ResumeRTS() error {
	now, _, out := q.pd.ctx.shell.Enter()
	defer q.pd.ctx.shell.Leave()
	return q.qp.ResumeRTS(now, out)
}

func (q *qp) ToError() error {
	now, _, out := q.pd.ctx.shell.Enter()
	defer q.pd.ctx.shell.Leave()
	return q.qp.ToError(now, out)
}

// ToReset removes all work requests and their completions.
func (q *qp) ToReset() error {
	q.pd.ctx.shell.Enter()
	defer q.pd.ctx.shell.Leave()
	return q.qp.ToReset()
}

// PostSend queues work requests. It calls Enter once for the whole list, and their frames are sent
// together.
func (q *qp) PostSend(wr ...verbs.SendWR) error {
	good, foreign := q.checkAHs(wr)
	now, _, out := q.pd.ctx.shell.Enter()
	defer q.pd.ctx.shell.Leave()
	q.pd.ctx.posted(len(wr))
	if err := q.qp.PostSend(now, wr[:good], out); err != nil {
		return err
	}
	return foreign
}

func (q *qp) PostRecv(wr ...verbs.RecvWR) error {
	q.pd.ctx.shell.Enter()
	defer q.pd.ctx.shell.Leave()
	q.pd.ctx.posted(len(wr))
	return q.qp.PostRecv(wr)
}

// UseRing gives the queue pair a send ring.
func (q *qp) UseRing(init verbs.RingInit) error {
	q.pd.ctx.shell.Enter()
	defer q.pd.ctx.shell.Leave()
	return q.qp.UseRing(init)
}

// Doorbell moves the limit of the ring.
func (q *qp) Doorbell(limit uint32) error {
	now, _, _ := q.pd.ctx.shell.Enter()
	defer q.pd.ctx.shell.Leave()
	return q.qp.Doorbell(now, limit)
}

func (q *qp) AttachMulticast(group verbs.GID) error {
	now, _, out := q.pd.ctx.shell.Enter()
	defer q.pd.ctx.shell.Leave()
	return q.qp.AttachMulticast(now, group, out)
}

func (q *qp) DetachMulticast(group verbs.GID) error {
	_, _, out := q.pd.ctx.shell.Enter()
	defer q.pd.ctx.shell.Leave()
	return q.qp.DetachMulticast(group, out)
}

func (q *qp) Destroy() error { return end(q.pd.ctx, q.pd.qps, q, q.qp.Destroy) }
