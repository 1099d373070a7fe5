package engine

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Faults of the NIC itself, for tests of how applications handle them. They raise the same events
// and completions as failures of real hardware.

// FailQP moves a queue pair to the error state and raises EventQPFatal. It fails with ErrInvalid if
// the queue pair does not exist. It fails with ErrState, and changes nothing, if the queue pair is
// in RESET or ERROR.
func (e *Engine) FailQP(now clock.Time, n wire.QPN, out *packetio.Batch) error {
	qp, err := e.Tables.target("fail QP", n)
	if err != nil {
		return err
	}
	_ = qp.q.Fail(now, reason.ByFault, &e.acts) // cannot fail: the queue pair is in neither RESET nor ERROR
	e.raise(verbs.AsyncEvent{Kind: verbs.EventQPFatal, QPN: n})
	e.apply(now, qp, out)
	return nil
}

// OverrunCQs makes the completion queues of a queue pair overrun: each raises EventCQErr, at most
// once, and every queue pair that uses one of them goes to the error state. Their entries can still
// be polled. It fails with the same errors as FailQP.
func (e *Engine) OverrunCQs(now clock.Time, n wire.QPN, out *packetio.Batch) error {
	qp, err := e.Tables.target("overrun CQ", n)
	if err != nil {
		return err
	}
	for _, c := range []*CQ{qp.send, qp.recv} {
		if c != nil && !c.overflowed {
			c.overflowed = true
			e.counters.CqOverrun++
			e.overflowed = append(e.overflowed, c)
		}
	}
	e.apply(now, qp, out)
	return nil
}
