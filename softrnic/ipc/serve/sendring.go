package serve

import (
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// useRing gives a queue pair a send ring in memory of its application. The NIC checks the memory
// that the ring and each entry name.
func (x queues) useRing(a proto.UseRing) (any, error) {
	q, err := x.ringed("use ring", a.H)
	if err != nil {
		return nil, err
	}
	return nil, q.UseRing(a.Init)
}

func (x queues) doorbell(a proto.Doorbell) (any, error) {
	q, err := x.ringed("ring doorbell", a.H)
	if err != nil {
		return nil, err
	}
	return nil, q.Doorbell(a.Limit)
}

// ringed returns the queue pair with handle h, as one that can have a send ring.
func (x queues) ringed(op string, h uint32) (verbs.RingQP, error) {
	o, err := x.find(op, h, kindQP)
	if err != nil {
		return nil, err
	}
	q, ok := o.qp.(verbs.RingQP)
	if !ok {
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrNotSupported}
	}
	return q, nil
}

// countCQ makes a completion queue drop completions for which it has no room instead of failing.
// This is for a queue whose completions are only counted, by WAIT entries of send rings.
func (x queues) countCQ(a proto.Handle) (any, error) {
	const op = "ignore overrun"
	o, err := x.find(op, a.H, kindCQ)
	if err != nil {
		return nil, err
	}
	c, ok := o.cq.(verbs.CountedCQ)
	if !ok {
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrNotSupported}
	}
	return nil, c.IgnoreOverrun()
}
