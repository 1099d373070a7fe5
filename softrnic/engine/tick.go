package engine

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

const (
	// maxTickFrames is the number of frames after which a Tick serves no further queue pair. A step of
	// one queue pair is limited by its window, so the steps of queue pairs exceed this by less than
	// one window.
	maxTickFrames = 256
	// maxTickRounds is the number of rounds in one Tick. Each round serves every due queue pair once,
	// so this limits how often one Tick serves a queue pair that is due again at once.
	maxTickRounds = 8
)

// Deadline returns when Tick must be called next; clock.Never if nothing is due.
func (e *Engine) Deadline() clock.Time {
	if len(e.rx.touched) > 0 || len(e.tx.loop.Frames) > 0 {
		return e.rx.batchAt
	}
	_, at := e.sched.due.Next()
	_, event := e.moderated.due.Next()
	at = clock.Min(clock.Min(at, event), clock.Min(e.tx.arrival(), e.tx.trimAt))
	at = clock.Min(at, e.verbFaults.deadline())
	return clock.Min(at, clock.Min(clock.Min(e.gsi.deadline(), e.Tables.groups.due), e.rings.deadline()))
}

// Tick handles the deadlines that are due: it ends the receive batch, raises delayed events of
// completion queues, calls the connection manager, reports multicast groups, executes entries
// of send rings, and gives back the memory of packets. Then it serves the queue pairs that are due. In
// each round it serves each of them once, and begins behind the one that it served last. It stops when it has built maxTickFrames
// frames or has made maxTickRounds rounds. If more work is due, Deadline is due at once.
func (e *Engine) Tick(now clock.Time, out *packetio.Batch) {
	if !e.Tables.up {
		return
	}
	e.EndBatch(now, out)
	e.verbFaults.tick(now, e, out)
	e.moderated.tick(now, &e.Events)
	e.gsi.tick(now, out)
	e.Tables.groups.tick(now, out)
	e.rings.tick(now, e, out)
	e.tx.trim(now)
	for range maxTickRounds {
		if !e.round(now, out) {
			return
		}
	}
}

// round serves each due queue pair once. It returns true if a queue pair is due again and the Tick
// has not reached its limit of frames.
func (e *Engine) round(now clock.Time, out *packetio.Batch) bool {
	ready := e.sched.collect(now)
	for i, qp := range ready {
		if len(out.Frames) >= maxTickFrames {
			for _, left := range ready[i:] {
				e.sched.rekey(left)
			}
			return false
		}
		if qp.dead {
			continue
		}
		e.sched.served = qp.q.Num()
		qp.q.Tick(now, &e.acts)
		e.apply(now, qp, out)
		e.drainLoop(now, out)
	}
	_, at := e.sched.due.Next()
	return at <= now
}

// agenda has the deadlines of objects of one kind. Each object has a place, a small index, because
// clock.Queue is fastest with small indexes.
type agenda[T any] struct {
	due    clock.Queue // deadlines of the objects, by their places
	places []*T        // nil means that the place is free
	free   []uint32
}

func (a *agenda[T]) add(o *T) (place uint32) {
	if n := len(a.free); n > 0 {
		place = a.free[n-1]
		a.free = a.free[:n-1]
		a.places[place] = o
		return place
	}
	a.places = append(a.places, o)
	return uint32(len(a.places) - 1)
}

func (a *agenda[T]) remove(place uint32) {
	a.due.Remove(place)
	a.places[place] = nil
	a.free = append(a.free, place)
}

// schedule has the deadlines of all queue pairs.
type schedule struct {
	agenda[QP]
	served wire.QPN // number of the queue pair served last
	ready  []*QP    // the queue pairs of one round
}

// collect returns the queue pairs that are due, in the order of their numbers, beginning behind the
// one served last. The slice is valid until the next call.
func (s *schedule) collect(now clock.Time) []*QP {
	s.ready = s.ready[:0]
	for {
		id, at := s.due.Next()
		if at > now {
			break
		}
		s.due.Remove(id)
		qp := s.places[id]
		qp.keyed = clock.Never
		s.ready = append(s.ready, qp)
	}
	if len(s.ready) < 2 {
		return s.ready
	}
	slices.SortFunc(s.ready, func(a, b *QP) int { return int(a.q.Num()) - int(b.q.Num()) })
	i, _ := slices.BinarySearchFunc(s.ready, s.served+1, func(q *QP, n wire.QPN) int { return int(q.q.Num()) - int(n) })
	slices.Reverse(s.ready[:i])
	slices.Reverse(s.ready[i:])
	slices.Reverse(s.ready)
	return s.ready
}

// rekey updates the deadline of qp in the schedule.
func (s *schedule) rekey(qp *QP) {
	at := qp.q.Deadline()
	if at == qp.keyed || qp.dead {
		return
	}
	qp.keyed = at
	s.due.Set(qp.place, at)
}
