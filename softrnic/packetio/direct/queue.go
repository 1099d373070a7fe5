package direct

import (
	"sync"
	"sync/atomic"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// Bounds of the frames that wait at one end of a link. Frames beyond them are dropped and counted.
const (
	maxFrames = 2048
	maxBytes  = 8 << 20
)

// queue has the frames of one direction of a link. Its two batches change places at each take, so
// that frames which were taken stay valid until the next take.
type queue struct {
	n     atomic.Int32 // frames in `in`, for readers without the lock
	mu    sync.Mutex   // guards the fields below
	in    packetio.Batch
	taken packetio.Batch
	busy  bool // frames have arrived since the last call of trim
}

// keptBytes is the most memory in bytes that each batch of a queue keeps while no frames arrive.
const keptBytes = 64 << 10

// trim gives back the memory of a burst, if no frame waits and none has arrived since the last call.
func (q *queue) trim() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy || len(q.in.Frames) > 0 {
		q.busy = false
		return
	}
	q.in.Trim(keptBytes)
	q.taken.Trim(keptBytes) // frames that are still being read keep their memory
}

// put appends a copy of f. It returns false if there is no room.
func (q *queue) put(f *packetio.Frame) bool {
	if len(q.in.Frames) >= maxFrames || q.in.Bytes()+len(f.Data) > maxBytes {
		return false
	}
	q.in.Copy(*f)
	q.busy = true
	return true
}

// take moves all frames to b. They are valid until the next call of take or drop.
func (q *queue) take(b *packetio.Batch, index int) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken.Reset()
	q.in, q.taken = q.taken, q.in
	q.n.Store(0)
	for _, f := range q.taken.Frames {
		f.Port = index
		b.Frames = append(b.Frames, f)
	}
	return len(q.taken.Frames)
}

// drop discards all frames, and returns their number and that of their packets.
func (q *queue) drop() (frames, packets int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	frames, packets = len(q.in.Frames), packetio.PacketsIn(q.in.Frames)
	q.in.Reset()
	q.n.Store(0)
	return frames, packets
}
