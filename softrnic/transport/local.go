package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// local reports a memory management operation: nothing of it is sent.
func (w *sendWQE) local() bool { return w.op == verbs.OpLocalInv || w.op == verbs.OpBindMW }

// executeLocal executes w, a local operation and the oldest work request, and completes it. A failed one is a
// memory management operation error, whose status ibverbs calls that of a bind (IBTA 11.6.2).
func (q *QP) executeLocal(w *sendWQE, out *Actions) {
	var fault mem.Fault
	if w.op == verbs.OpBindMW {
		fault = q.env.Mem.Bind(q.cfg.PD, q.cfg.QPN, w.rkey, q.sq.sgl(q.sq.send)[0], w.access)
	} else {
		fault = q.env.Mem.Invalidate(q.cfg.PD, q.cfg.QPN, w.invRKey)
	}
	if fault != mem.OK {
		w.status = verbs.MWBindErr
		return
	}
	q.sq.send++
	q.completeSend(w, verbs.Success, out)
}

// checkLocal validates what does not depend on memory of a local operation.
func checkLocal(wr *verbs.SendWR) error {
	const op = "post send"
	switch {
	case wr.Op == verbs.OpLocalInv && len(wr.SGL) > 0:
		return postErr(op, verbs.ErrInvalid, "LOCAL_INV takes no SGL")
	case wr.Op == verbs.OpBindMW && len(wr.SGL) != 1:
		return postErr(op, verbs.ErrInvalid, "BIND_MW takes an SGL of one piece of a region, not %d", len(wr.SGL))
	}
	return nil
}
