package engine

import "github.com/rdmalab/rdmalab/softrnic/transport"

// TakeReceives makes the queue pair take its receives from src; see transport.QP.TakeReceives.
func (q *QP) TakeReceives(src transport.Receives) { q.q.TakeReceives(src) }

// TakeReceives makes the SRQ take its receives from src; see transport.SRQ.TakeReceives.
func (s *SRQ) TakeReceives(src transport.Receives) { s.s.TakeReceives(src) }

// Sending returns the number of send work requests that have not completed. It may be called after
// Destroy, and is then 0.
func (q *QP) Sending() int {
	if q.dead {
		return 0
	}
	return q.q.Sending()
}
