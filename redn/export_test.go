package redn

import (
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
)

// EndWithoutAdd ends a lap without raising its counts.
func (l *Loop) EndWithoutAdd() {
	l.restore()
	l.refresh()
}

// EnableUpTo appends an ENABLE with any limit.
func (q *Queue) EnableUpTo(to *Queue, limit uint32) { q.enable(to, limit) }

// State returns the state of the ring of queue `of`, which says what it waits for, and the index of
// its next entry.
func (m *Machine) State(of *Queue) (sendring.State, uint32) {
	for _, q := range m.queues {
		if q.Queue == of {
			state, next, _, _ := q.qp.RingState()
			return state, next
		}
	}
	return sendring.Ended, 0
}

// QPOf returns the queue pair of a queue.
func (m *Machine) QPOf(q *Queue) *engine.QP {
	for _, each := range m.queues {
		if each.Queue == q {
			return each.qp
		}
	}
	return nil
}
