package serve

import (
	"math"

	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// useRing makes a queue pair execute a send ring in registered memory of the program (package sendring). The
// NIC checks the memory that the ring and each entry name.
func (x *programQueues) useRing(o *programQPObject, a uverbs.RingArgs) (result, error) {
	const op, all = "use ring", uverbs.RingManaged | uverbs.RingChecked | uverbs.RingCounts16
	q, ok := o.qp.(verbs.RingQP)
	switch {
	case !ok:
		return result{}, &verbs.OpError{Op: op, Err: verbs.ErrNotSupported}
	case a.Flags&^all != 0:
		return result{}, refuse(op, "flags %#x; choose from %#x", a.Flags, all)
	case a.Blocks > math.MaxUint16 || a.Prefetch > math.MaxUint16:
		return result{}, refuse(op, "%d blocks, %d read at once", a.Blocks, a.Prefetch)
	}
	err := q.UseRing(verbs.RingInit{
		Addr: a.Addr, LKey: a.LKey, Blocks: int(a.Blocks), Prefetch: int(a.Prefetch), Rate: int(a.Rate),
		Managed: a.Flags&uverbs.RingManaged != 0, Checked: a.Flags&uverbs.RingChecked != 0, Counts16: a.Flags&uverbs.RingCounts16 != 0,
	})
	if err == nil {
		x.p.with(func(*port) { o.own.ringed = true })
	}
	return result{}, err
}

func (x *programQueues) doorbell(o *programQPObject, a uverbs.DoorbellArgs) (result, error) {
	if q, ok := o.qp.(verbs.RingQP); ok {
		return result{}, q.Doorbell(a.Limit)
	}
	return result{}, &verbs.OpError{Op: "ring doorbell", Err: verbs.ErrNotSupported}
}

// cqNumber returns the number by which a WAIT names a completion queue. That its completions are only
// counted, and may be lost, a program says when it makes the queue (IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN).
func (x *programQueues) cqNumber(o *cqObject, _ uverbs.Handle) (result, error) {
	c, ok := o.cq.(verbs.CountedCQ)
	if !ok {
		return result{}, &verbs.OpError{Op: "number of CQ", Err: verbs.ErrNotSupported}
	}
	return answer(uverbs.Number{Number: c.Number()}), nil
}
