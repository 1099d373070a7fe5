package serve

import (
	"github.com/rdmalab/rdmalab/softrnic/cq"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// resizeCQ gives a completion queue a ring of another size and moves the completions into it. The
// library then maps the new ring. No thread of the program polls the queue in the meantime.
func (x *programQueues) resizeCQ(o *cqObject, a uverbs.ResizeCQArgs) (result, error) {
	if err := within("resize CQ", "cqe", a.CQE, 1, x.p.device().MaxCQE); err != nil {
		return result{}, err
	}
	n := int(a.CQE)
	queued := int64(n)*wcBytes + int64(uverbs.RingLen(n, uverbs.WCSlot))
	if err := x.p.c.objects.take("resize CQ", need{kindQueued, queued}); err != nil {
		return result{}, err
	}
	ring, at, mi, err := x.makeRing(n, uverbs.WCSlot)
	if err == nil {
		if err = x.exchange(o, ring); err != nil {
			x.drop(at)
		}
	}
	if err != nil {
		x.p.c.objects.release(need{kindQueued, queued})
		return result{}, err
	}
	x.drop(o.place)
	x.p.c.objects.release(need{kindQueued, o.queued})
	o.place, o.queued = at, queued
	return answer(uverbs.CQSize{CQE: uint32(ring.Cap())}, mi), nil
}

// exchange moves the completions of a queue to another ring, if they fit. It first posts the sends
// that wait in rings and complete on this queue, so that their completions are moved, too.
func (x *programQueues) exchange(o *cqObject, to uverbs.Ring) error {
	room, err := cq.New(to.Cap())
	if err != nil {
		return err
	}
	now, e, out := x.p.c.s.pump.shell.Enter()
	defer x.p.c.s.pump.shell.Leave()
	x.p.c.s.pump.noticeDown(e)
	for _, q := range x.p.c.port.settled {
		if q.done == o.own {
			q.rung(now, x.p.c.port, out)
		}
	}
	o.own.fetch(x.p.c.port)
	return o.own.exchange(to, room)
}

// exchange gives a completion queue the ring `to` in place of its ring, and the NIC's queue the
// capacity of `room`. It keeps all completions, and fails if they do not fit. The caller has
// exclusive use of the engine.
func (c *programCQ) exchange(to uverbs.Ring, room *cq.CQ) error {
	first := c.ring.Consumer()
	n, all := 0, uint32(c.ring.Between(first, c.tail))
	for i := range all {
		if !uverbs.Withdrawn(c.ring.Slot(first + i)) {
			n++
		}
	}
	if n > to.Cap() {
		return refuse("resize CQ", "%d completions wait, and the new ring holds %d", n, to.Cap())
	}
	if err := c.cq.Resize(room); err != nil {
		return err
	}
	kept := uint32(0)
	for i := range all {
		slot := to.Slot(kept)
		if copy(slot, c.ring.Slot(first+i)); !uverbs.Withdrawn(slot) {
			kept++
		}
	}
	c.ring, c.tail = to, kept
	c.rings++
	to.SetProducer(c.tail)
	return nil
}
