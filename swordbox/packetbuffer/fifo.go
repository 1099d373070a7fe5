package packetbuffer

import "github.com/rdmalab/rdmalab/softrnic/packetio"

// fifo holds copies of frames in their order. It reuses their memory.
type fifo struct {
	ring  []packetio.Frame // the length is 0 or a power of 2
	head  int
	n     int
	bytes int
}

// push appends a copy of f.
func (q *fifo) push(f packetio.Frame) {
	if q.n == len(q.ring) {
		ring := make([]packetio.Frame, max(16, 2*q.n))
		for i := range q.n {
			ring[i] = q.ring[(q.head+i)&(q.n-1)]
		}
		q.ring, q.head = ring, 0
	}
	s := &q.ring[(q.head+q.n)&(len(q.ring)-1)]
	f.Data = append(s.Data[:0], f.Data...)
	*s = f
	q.n++
	q.bytes += len(f.Data)
}

// pop removes the first frame. It is valid until the next push.
func (q *fifo) pop() packetio.Frame {
	f := q.ring[q.head]
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	q.bytes -= len(f.Data)
	return f
}

// first returns the first frame, which must exist. It is valid until the next push.
func (q *fifo) first() packetio.Frame { return q.ring[q.head] }
