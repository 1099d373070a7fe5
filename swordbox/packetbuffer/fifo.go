package packetbuffer

import "github.com/rdmalab/rdmalab/softrnic/packetio"

// fifo holds copies of frames in their order. It reuses its memory: about twice as many bytes as
// have ever waited at the same time, and at least 4 times frameBytes.
type fifo struct {
	ring  []held // the length is 0 or a power of 2
	head  int    // index of the first frame in ring
	n     int    // number of frames
	bytes int    // sum of their lengths
	// data is a ring buffer with the bytes of the frames, in the order of the frames. Each frame is
	// in one piece. free is where the next bytes go.
	data []byte
	free int
}

// held is a frame with the place of its bytes in data.
type held struct {
	packetio.Frame
	at int
}

// frameBytes is how many bytes a fifo has room for, for each frame that may wait in it. A
// super-frame may have 16 times frameBytes, so fewer super-frames find room.
const frameBytes = 4 << 10

// takes reports whether a frame of size bytes finds room; high is how many frames may wait.
func (q *fifo) takes(size, high int) bool {
	return q.n == 0 || q.n < high && q.bytes+size <= high*frameBytes
}

// below reports whether fewer than low frames wait, and have fewer bytes than low frames may have.
func (q *fifo) below(low int) bool { return q.n < low && q.bytes < low*frameBytes }

// push appends a copy of f.
func (q *fifo) push(f packetio.Frame) {
	if q.n == len(q.ring) {
		ring := make([]held, max(16, 2*q.n))
		for i := range q.n {
			ring[i] = q.ring[(q.head+i)&(q.n-1)]
		}
		q.ring, q.head = ring, 0
	}
	at := q.room(len(f.Data))
	q.free = at + len(f.Data)
	copy(q.data[at:], f.Data)
	f.Data = nil
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = held{f, at}
	q.ring[(q.head+q.n)&(len(q.ring)-1)].Data = q.data[at:q.free:q.free]
	q.n++
	q.bytes += q.free - at
}

// room returns the place in data where size bytes are free.
func (q *fifo) room(size int) int {
	if q.n == 0 && size <= len(q.data) {
		return 0
	}
	if q.n > 0 {
		first := q.ring[q.head].at
		switch {
		case q.free <= first && size <= first-q.free, q.free > first && size <= len(q.data)-q.free:
			return q.free
		case q.free > first && size <= first:
			return 0
		}
	}
	data, at := make([]byte, max(4*frameBytes, 2*(q.bytes+size))), 0
	for i := range q.n {
		h := &q.ring[(q.head+i)&(len(q.ring)-1)]
		h.at, h.Data = at, data[at:at+copy(data[at:], h.Data)]
		at += len(h.Data)
	}
	q.data = data
	return at
}

// pop removes the first frame and returns it. The frame is valid until the next push.
func (q *fifo) pop() packetio.Frame {
	f := q.first()
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	q.bytes -= len(f.Data)
	return f
}

// first returns the first frame, which must exist. The frame is valid until the next push.
func (q *fifo) first() packetio.Frame { return q.ring[q.head].Frame }
