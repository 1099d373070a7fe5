package memcable

import (
	"slices"
	"sync"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// queue is one direction of the cable: a ring of slots whose buffers are reused, so that sending
// does not allocate. Slots that a Recv has returned are free again at the next Recv.
type queue struct {
	filter func(index int, f packetio.Frame) int

	mu     sync.Mutex // guards the fields below
	slots  []packetio.Frame
	head   int // next slot to be received
	count  int // slots that wait
	lent   int // slots before head that the last Recv handed out
	index  int // frames offered so far
	closed bool
	rx     packetio.Stats
	notify []chan struct{} // one for each waiter, with capacity 1
}

func newQueue(depth int) *queue { return &queue{slots: make([]packetio.Frame, depth)} }

func (q *queue) put(frames []packetio.Frame) (bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, f := range frames {
		copies := 1
		if q.filter != nil {
			copies = q.filter(q.index, f)
		}
		q.index++
		bytes += len(f.Data)
		for range copies {
			q.store(f)
		}
	}
	if q.count > 0 {
		q.wakeLocked()
	}
	return bytes
}

// store copies f into the next free slot.
func (q *queue) store(f packetio.Frame) {
	switch {
	case q.closed:
		return
	case q.count+q.lent == len(q.slots):
		q.rx.RxDropped++
		return
	}
	slot := &q.slots[(q.head+q.count)%len(q.slots)]
	data := append(slot.Data[:0], f.Data...)
	*slot = f
	slot.Data, slot.Port = data, 0
	q.count++
}

func (q *queue) take(b *packetio.Batch, limit int) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0, ErrClosed
	}
	n := min(q.count, limit, len(q.slots)-1) // one slot stays free, so that Recv never waits for itself
	n = max(n, min(q.count, 1))
	for i := range n {
		f := q.slots[(q.head+i)%len(q.slots)]
		b.Frames = append(b.Frames, f)
		q.rx.RxPackets++
		q.rx.RxBytes += uint64(len(f.Data))
	}
	q.head = (q.head + n) % len(q.slots)
	q.count -= n
	q.lent = n
	return n, nil
}

func (q *queue) state() (ready, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count > 0, q.closed
}

func (q *queue) addRxStats(s *packetio.Stats) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s.RxPackets, s.RxBytes, s.RxDropped = q.rx.RxPackets, q.rx.RxBytes, q.rx.RxDropped
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.count, q.lent = 0, 0
	q.wakeLocked()
}

func (q *queue) wakeLocked() {
	for _, c := range q.notify {
		select {
		case c <- struct{}{}:
		default: // a wake-up is pending already
		}
	}
}

func (q *queue) attach(c chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.notify = append(q.notify, c)
	if q.count > 0 || q.closed {
		q.wakeLocked()
	}
}

func (q *queue) detach(c chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.notify = slices.DeleteFunc(q.notify, func(have chan struct{}) bool { return have == c })
}
