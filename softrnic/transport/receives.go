package transport

import "github.com/rdmalab/rdmalab/softrnic/verbs"

// Receives is a ring of receives that a program writes in shared memory without ringing a doorbell.
// The queue pair or SRQ takes a receive from the ring when a message needs one. A queue pair takes
// all receives when it is flushed, and in the ERROR state it goes on to flush those that are added
// (IBTA 10.3.1/flush).
type Receives interface {
	// Next takes the oldest receive, copies its SGEs into sgl, and returns their number. ok is
	// false if there is no receive.
	Next(sgl []verbs.SGE) (id uint64, nsge int, ok bool)
	Len() int
}

// TakeReceives makes the queue pair take its receives from src instead of from PostRecv. The queue
// pair must have been created with MaxRecvWR 1 and without a shared receive queue.
func (q *QP) TakeReceives(src Receives) { q.rcv.outside = src }

// TakeReceives makes the queue take its receives from src instead of from PostRecv.
func (s *SRQ) TakeReceives(src Receives) { s.outside = src }

// takeFrom moves the oldest receive of src into the queue, which must have room. It returns false
// if src has no receive, or if the SGL of the receive is invalid; an invalid receive is lost.
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

// EnableReceives executes a RECV_ENABLE in a send ring for this queue pair: it lets the queue pair
// use its receives again, up to the one with index limit−1. The index counts from the first post
// since RESET. Receive i is the one that was posted as number i mod MaxRecvWR.
//
// If narrow is true, only the low 16 bits of limit are used. Of all indexes with these bits, the
// limit is then the one nearest to the present limit. The limit moves forward only, and at most
// MaxRecvWR receives are queued. EnableReceives returns false if MaxRecvWR is not a power of two,
// if fewer than MaxRecvWR receives were posted since RESET, or if the receives come from an SRQ or
// from Receives.
func (q *QP) EnableReceives(limit uint32, narrow bool) bool {
	r := &q.rcv.rq
	n := uint32(len(r.ring))
	if q.core.cfg.SRQ != nil || q.rcv.outside != nil || int(n) != r.limit || r.tail < n {
		return false
	}
	ahead := int32(limit - r.tail)
	if narrow {
		ahead = int32(int16(limit - r.tail))
	}
	r.tail += uint32(max(0, min(ahead, int32(n-(r.tail-r.head)))))
	return true
}

// Sending returns the number of send work requests that are not complete.
func (q *QP) Sending() int { return q.req.sender.sq.len() }
