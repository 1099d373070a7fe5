package engine

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

const (
	// maxTickFrames ends a Tick: it serves no further queue pair once that many frames were built. A step of one
	// queue pair is bounded by its window, so a Tick builds fewer than this plus one window.
	maxTickFrames = 256
	// maxTickRounds bounds how often one Tick comes back to a queue pair that is due again at once.
	maxTickRounds = 8
)

// Deadline is when Tick next wants to be called; clock.Never if the NIC is idle.
func (e *Engine) Deadline() clock.Time {
	if len(e.touched) > 0 || len(e.loop.Frames) > 0 {
		return e.batchAt
	}
	_, at := e.due.Next()
	return clock.Min(at, e.gsiDeadline())
}

// Tick does what is due at or before now: it ends the receive batch, lets the connection manager act, then serves the queue pairs that are due, each
// once a round and beginning behind the one that was served last, until a bound on frames ends it. What is left
// keeps Deadline due.
func (e *Engine) Tick(now clock.Time, out *packetio.Batch) {
	if !e.up {
		return
	}
	e.EndBatch(now, out)
	e.tickGSI(now, out)
	for range maxTickRounds {
		if !e.round(now, out) {
			return
		}
	}
}

// round serves each due queue pair once; false says that the Tick is over.
func (e *Engine) round(now clock.Time, out *packetio.Batch) bool {
	e.collectDue(now)
	for i, qp := range e.ready {
		if len(out.Frames) >= maxTickFrames {
			for _, left := range e.ready[i:] {
				e.rekey(left)
			}
			return false
		}
		if qp.dead {
			continue
		}
		e.served = qp.q.Num()
		qp.q.Tick(now, &e.acts)
		e.apply(now, qp, out)
		e.drainLoop(now, out)
	}
	_, at := e.due.Next()
	return at <= now
}

// collectDue fills e.ready with the queue pairs that are due, in the order of their numbers from the one behind
// e.served on.
func (e *Engine) collectDue(now clock.Time) {
	e.ready = e.ready[:0]
	for {
		id, at := e.due.Next()
		if at > now {
			break
		}
		e.due.Remove(id)
		if qp := e.qps[wire.QPN(id)]; qp != nil {
			qp.keyed = clock.Never
			e.ready = append(e.ready, qp)
		}
	}
	if len(e.ready) < 2 {
		return
	}
	slices.SortFunc(e.ready, func(a, b *QP) int { return int(a.q.Num()) - int(b.q.Num()) })
	i, _ := slices.BinarySearchFunc(e.ready, e.served+1, func(q *QP, n wire.QPN) int { return int(q.q.Num()) - int(n) })
	slices.Reverse(e.ready[:i])
	slices.Reverse(e.ready[i:])
	slices.Reverse(e.ready)
}

// rekey tells the heap the deadline of qp.
func (e *Engine) rekey(qp *QP) {
	at := qp.q.Deadline()
	if at == qp.keyed || qp.dead {
		return
	}
	qp.keyed = at
	e.due.Set(uint32(qp.q.Num()), at)
}
