package engine

import "github.com/rdmalab/rdmalab/softrnic/transport"

// TakeReceives makes src the source of the queue pair's receives; see transport.Receives.
func (q *QP) TakeReceives(src transport.Receives) { q.q.TakeReceives(src) }

// TakeReceives makes src the source of the queue's receives; see transport.Receives.
func (s *SRQ) TakeReceives(src transport.Receives) { s.s.TakeReceives(src) }

// Sending returns the number of send work requests that are not complete; 0 after Destroy.
func (q *QP) Sending() int {
	if q.dead {
		return 0
	}
	return q.q.Sending()
}
