package serve

import (
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// useRing gives a queue pair a send ring in memory of its application. The NIC checks the memory
// that the ring and each entry name.
func (x queues) useRing(a proto.UseRing) (any, error) {
	return nil, x.ringed("use ring", a.H, func(q verbs.RingQP) error { return q.UseRing(a.Init) })
}

func (x queues) doorbell(a proto.Doorbell) (any, error) {
	return nil, x.ringed("ring doorbell", a.H, func(q verbs.RingQP) error { return q.Doorbell(a.Limit) })
}

// ringed calls f for the queue pair with handle h, if it is one that can have a send ring.
func (x queues) ringed(op string, h uint32, f func(q verbs.RingQP) error) error {
	return x.on(op, h, kindQP, func(o *queueObject) error {
		if q, ok := o.qp.(verbs.RingQP); ok {
			return f(q)
		}
		return &verbs.OpError{Op: op, Err: verbs.ErrNotSupported}
	})
}

// countCQ makes a completion queue drop completions for which it has no room instead of failing.
// This is for a queue whose completions are only counted, by WAIT entries of send rings.
func (x queues) countCQ(a proto.Handle) (any, error) {
	const op = "ignore overrun"
	return nil, x.on(op, a.H, kindCQ, func(o *queueObject) error {
		if c, ok := o.cq.(verbs.CountedCQ); ok {
			return c.IgnoreOverrun()
		}
		return &verbs.OpError{Op: op, Err: verbs.ErrNotSupported}
	})
}
