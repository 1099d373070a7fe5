package transport

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// receiver is the receive queue of one queue pair and its completions.
type receiver struct {
	*core
	// rq holds the posted receives. With a shared receive queue, or with Receives, it holds at most
	// one receive, which was taken from there.
	rq recvQueue
	// outside, if not nil, is a shared ring (see Receives) from which a receive is taken when rq is
	// empty.
	outside Receives
	// pd is the protection domain of the receives: that of the shared receive queue, if there is
	// one.
	pd mem.PD
	// srq is the shared receive queue that the present request of XRC names; nil before the first one.
	srq *SRQ
	// held is true while a message is arriving: the oldest receive is in use for it.
	held bool
	// flushAt is when the next Tick flushes receives that were posted in the ERROR state; clock.Never
	// if there are none. pause is the present time between two looks at outside in this state.
	flushAt clock.Time
	pause   time.Duration
}

// In the ERROR state the queue pair looks at the ring outside again and again, because the program
// rings no bell for the receives that it adds. The time between two looks doubles from firstPause up
// to lastPause as long as there are none.
const (
	firstPause = 100 * time.Microsecond
	lastPause  = 50 * time.Millisecond
)

// open makes the receive queue of a queue pair.
func (r *receiver) open(c *core) {
	r.core = c
	switch srq := c.cfg.SRQ; {
	case c.cfg.XRC != nil:
		r.rq = newRecvQueue(1, maxSGEs)
	case srq != nil:
		r.rq, r.pd = newRecvQueue(1, srq.rq.maxSGE), srq.pd
	default:
		r.rq, r.pd = newRecvQueue(c.cfg.MaxRecvWR, c.cfg.MaxSGE), c.cfg.PD
	}
}

// reset empties the queue; the receives get no completions.
func (r *receiver) reset() {
	r.rq.head, r.rq.tail = 0, 0
	r.held, r.flushAt, r.pause, r.srq = false, clock.Never, 0, nil
}

// ready reports whether there is a receive for the next message.
func (r *receiver) ready() bool {
	return r.rq.len() > 0 || (r.cfg.SRQ != nil && r.cfg.SRQ.take(&r.rq)) || (r.srq != nil && r.srq.take(&r.rq)) || r.fetch()
}

// fetch moves a receive from outside into rq, which must be empty. It returns false if there is
// none.
func (r *receiver) fetch() bool { return r.outside != nil && r.rq.takeFrom(r.outside) }

// oldest returns the receive that the arriving message uses, or that the next one will use.
func (r *receiver) oldest() *recvWQE { return r.rq.at(r.rq.head) }

// sgl returns the SGL of the oldest receive. Its memory is in the protection domain pd.
func (r *receiver) sgl() []verbs.SGE { return r.rq.sgl(r.rq.head) }

// complete removes the oldest receive from the queue and appends its completion to out. The caller
// sets those fields of the completion that depend on the message. code is the reason of an error.
func (r *receiver) complete(status verbs.Status, code reason.Code, out *Actions) *verbs.WC {
	c := r.env.Counters
	switch status {
	case verbs.Success:
		c.RdmaRecvs++
	case verbs.WRFlushErr:
		c.CqeFlushErr++
	default:
		c.CqeErr++
	}
	done := grown(&out.Done)
	done.To = r.received
	if r.srq != nil {
		done.To = r.srq.received
	}
	wc := &done.WC
	wc.ID, wc.Status, wc.QPN, wc.VendorErr = r.oldest().id, status, r.cfg.QPN, uint32(code)
	if !r.svc.datagram {
		wc.SrcQPN = r.rtr.DestQPN
	}
	r.rq.head++
	r.held = false
	return wc
}

// flush completes all receives with WRFlushErr. It asks only once how many receives the shared ring
// (outside) has, because the program may add receives all the time.
func (r *receiver) flush(out *Actions) {
	n := r.rq.len()
	if r.outside != nil {
		n += r.outside.Len()
		r.look(n)
	}
	for ; n > 0 && (r.rq.len() > 0 || r.fetch()); n-- {
		r.complete(verbs.WRFlushErr, r.flushed, out)
	}
}

// look sets when the next Tick looks at the shared ring (outside). found is how many receives it has
// now.
func (r *receiver) look(found int) {
	r.pause = min(max(2*r.pause, firstPause), lastPause)
	if found > 0 {
		r.pause = firstPause
	}
	r.flushAt = r.lastNow.Add(r.pause)
}
