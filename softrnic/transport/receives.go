package transport

import "github.com/rdmalab/rdmalab/softrnic/verbs"

// Receives are receives that wait outside of a receive queue, in memory that a program writes
// without ringing a doorbell. A queue takes one when a message needs it, and all of them when they
// are flushed.
type Receives interface {
	// Next takes the oldest receive: its pieces go into sgl, and nsge says how many there are.
	// False: there is none.
	Next(sgl []verbs.SGE) (id uint64, nsge int, ok bool)
	// Len is how many there are.
	Len() int
}

// TakeReceives makes the queue pair take its receives from src instead of from PostRecv. The caller
// has made it with a MaxRecvWR of 1, and without a shared receive queue.
func (q *QP) TakeReceives(src Receives) { q.rcv.outside = src }

// TakeReceives makes the queue take its receives from src instead of from PostRecv.
func (s *SRQ) TakeReceives(src Receives) { s.outside = src }

// takeFrom takes the oldest receive of src into the queue, which has room. False: there is none, or
// it is malformed.
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

// Sending is how many send work requests are not complete.
func (q *QP) Sending() int { return q.req.sq.len() }
