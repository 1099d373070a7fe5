package redn

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
)

// stopLen is the length in bytes of the WAIT that a break copies: a control segment, and a segment
// with the count.
const stopLen = 2 * 16

// Unrolled appends n iterations. Each iteration has the requests that body appends, and then
// requests that break if the operand at x equals y. A break replaces the next request of q by a
// WAIT for completions that never come, so q executes nothing after it. (After the break of a Loop,
// the queue is idle and can be started again.)
//
// Besides its body, an iteration has what If has. With an operand that is Held, requests before it fill the operands of the
// returned conditional requests. q must be managed: if it were not, the NIC could read requests
// ahead, before a break replaces them. `on` and scratch are as in If.
func (q *Queue) Unrolled(pool *Pool, on *Queue, n int, x Mem, y Operand, scratch Mem, body func(i int)) (asked []*Request, err error) {
	if !q.Managed {
		return nil, fmt.Errorf("redn: queue %s: a break has no effect on a request that the NIC has read: the queue must be managed", q.Name)
	}
	stop := pool.Put(q.never())
	for i := range n {
		body(i)
		w := q.conditional(on, x, y, Mem{RKey: q.Ring.RKey}, stop, scratch, false)
		q.decide(on)
		next := &Request{queue: q, index: q.next}
		w.entry.RemoteAddr = next.bytes(0, stopLen).Addr
		w.changed = false
		asked = append(asked, w)
	}
	q.Nop(0) // the break of the last iteration replaces this entry
	return asked, nil
}

// never returns the bytes of a WAIT that never ends: its count is ahead of the completions by half
// of what the ring allows (see farthest).
func (q *Queue) never() []byte {
	count := q.Done.Count + uint32(q.farthest()/2)
	e := sendring.Entry{Op: sendring.Wait, Count: count, Object: q.Done.Number, QPN: q.QPN}
	return e.AppendTo(nil)[:stopLen]
}
