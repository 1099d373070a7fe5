package engine

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Faults of the NIC itself, to test how applications handle them. They raise the events and
// completions of a real hardware failure.

// FailQP takes a queue pair to the error state with EventQPFatal. ErrInvalid when it does not
// exist; ErrState, without a change, when it is in RESET or ERROR.
func (e *Engine) FailQP(now clock.Time, n wire.QPN, out *packetio.Batch) error {
	qp, err := e.target("fail QP", n)
	if err != nil {
		return err
	}
	_ = qp.q.ToError(now, &e.acts) // a live queue pair can always go to ERROR
	e.raise(verbs.AsyncEvent{Kind: verbs.EventQPFatal, QPN: n})
	e.apply(now, qp, out)
	return nil
}

// OverrunCQs lets the completion queues of a queue pair overrun: EventCQErr for each, at most once
// per queue, and every queue pair that uses one of them goes to the error state. Their entries can
// still be polled. The errors are those of FailQP.
func (e *Engine) OverrunCQs(now clock.Time, n wire.QPN, out *packetio.Batch) error {
	qp, err := e.target("overrun CQ", n)
	if err != nil {
		return err
	}
	for _, c := range []*CQ{qp.send, qp.recv} {
		if !c.overflowed {
			c.overflowed = true
			e.counters.CqOverrun++
			e.overflowed = append(e.overflowed, c)
		}
	}
	e.apply(now, qp, out)
	return nil
}
