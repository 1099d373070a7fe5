package engine

import "github.com/rdmalab/rdmalab/softrnic/transport"

// TakeReceives makes the queue pair take its receives from src instead of from PostRecv; see
// transport.Receives.
func (q *QP) TakeReceives(src transport.Receives) { q.q.TakeReceives(src) }

// TakeReceives makes the shared receive queue take its receives from src instead of from PostRecv;
// see transport.Receives.
func (s *SRQ) TakeReceives(src transport.Receives) { s.s.TakeReceives(src) }

// Sending returns the number of send work requests that have not completed. It may be called after
// Destroy, and is then 0.
func (q *QP) Sending() int {
	if q.dead {
		return 0
	}
	return q.q.Sending()
}
