package engine

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Faults of the NIC itself, for those who test what applications make of them. They look as if the hardware had failed:
// with the events and completions of the real thing.

// FailQP takes a queue pair to the error state with EventQPFatal. ErrInvalid when it is not there; one that is in RESET
// or in error already stays as it is, which is ErrState.
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

// OverrunCQs lets the completion queues of a queue pair overrun: EventCQErr for each, once in its life, and every queue
// pair that uses one of them goes to the error state. What was in the queues can still be polled. The errors are those
// of FailQP.
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

// target finds a queue pair that can fail.
func (e *Engine) target(op string, n wire.QPN) (*QP, error) {
	if err := e.running(op); err != nil {
		return nil, err
	}
	qp := e.qps[n]
	switch {
	case qp == nil:
		return nil, opError(op, verbs.ErrInvalid, "no queue pair %#x", uint32(n))
	case !qp.live():
		return nil, opError(op, verbs.ErrState, "queue pair %#x is in %v", uint32(n), qp.q.State())
	}
	return qp, nil
}
