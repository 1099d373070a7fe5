package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// local reports whether w is a memory management operation, which sends no packet.
func (w *sendWQE) local() bool { return sendOps[w.op].local }

// code returns the reason with which w will fail; None if it must be looked for.
func (w *sendWQE) code() reason.Code {
	switch w.status {
	case verbs.MWBindErr:
		return reason.LocalOp
	case verbs.BadRespErr:
		return reason.PeerBadResponse // of a work request that was not the oldest
	default: // a fault of its own memory or attributes, which noteFailure looks for
	}
	return reason.None
}

// checkLocal checks the number of SGEs of a local operation. The key and the memory are checked
// when the operation is executed.
func checkLocal(wr *verbs.SendWR) error {
	const op = "post send"
	switch {
	case wr.Op == verbs.OpLocalInv && len(wr.SGL) > 0:
		return verbs.Errorf(op, verbs.ErrInvalid, "LOCAL_INV takes no SGL")
	case wr.Op != verbs.OpLocalInv && len(wr.SGL) != 1:
		return verbs.Errorf(op, verbs.ErrInvalid, "%v takes an SGL of one piece of a region, not %d", wr.Op, len(wr.SGL))
	}
	return nil
}
