package transport

import "github.com/rdmalab/rdmalab/softrnic/verbs"

// Receives are receives in a ring that a program writes in shared memory without ringing a
// doorbell. The queue pair or SRQ takes one when a message needs it, and all of them when it is
// flushed.
type Receives interface {
	// Next takes the oldest receive, copies its SGEs into sgl, and returns their number. ok is
	// false if there is no receive.
	Next(sgl []verbs.SGE) (id uint64, nsge int, ok bool)
	// Len returns the number of receives.
	Len() int
}

// TakeReceives makes the queue pair take its receives from src instead of from PostRecv. The caller
// has created it with MaxRecvWR 1 and without a shared receive queue.
func (q *QP) TakeReceives(src Receives) { q.rcv.outside = src }

// TakeReceives makes the queue take its receives from src instead of from PostRecv.
func (s *SRQ) TakeReceives(src Receives) { s.outside = src }

// takeFrom moves the oldest receive of src into the queue, which has room. It returns false if
// there is none, or if it is malformed.
func (r *recvQueue) takeFrom(src Receives) bool {
	i := int(r.tail&uint32(len(r.ring)-1)) * r.maxSGE
	sgl := r.sges[i : i+r.maxSGE]
	id, n, ok := src.Next(sgl)
	if !ok {
		return false
	}
	length, err := sglLength("post recv", sgl[:n], r.maxSGE)
	if err != nil {
		return false
	}
	*r.at(r.tail) = recvWQE{id: id, nsge: n, length: length}
	r.tail++
	return true
}

// Sending returns the number of send work requests that are not complete.
func (q *QP) Sending() int { return q.req.sq.len() }
