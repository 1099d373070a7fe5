package direct

import (
	"sync"
	"sync/atomic"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Bounds of the frames that wait at one end of a link. Frames beyond them are dropped and counted.
const (
	maxFrames = 2048
	maxBytes  = 8 << 20
	// maxRuns bounds the runs of open packets that share memory (packetio.Open.Shares). A packet that
	// waits keeps the memory of all that share with it, up to hundreds of times its own. So those beyond
	// the bound wait encoded.
	maxRuns = 256
)

// queue has the frames of one direction of a link. Its two batches change places at each take, so
// that frames which were taken stay valid until the next take.
type queue struct {
	n      atomic.Int32 // frames in `in`, for readers without the lock
	mu     sync.Mutex   // guards the fields below
	in     packetio.Batch
	taken  packetio.Batch
	open   int            // bytes of the open packets in `in`
	runs   int            // of open packets in `in` that share memory
	newest *packetio.Open // in `in`
	busy   bool           // frames have arrived since the last call of trim
	// last is true if a taken open packet goes no further than to the one who takes it, a NIC.
	last   bool
	sealer wire.Sealer // for packets that wait encoded
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

// put appends a copy of f, or f itself if it is an open packet that may wait as it is. It returns false if
// there is no room.
func (q *queue) put(f *packetio.Frame) bool {
	if len(q.in.Frames) >= maxFrames || q.in.Bytes()+q.open+f.Len() > maxBytes {
		return false
	}
	q.busy = true
	switch o := f.Open; {
	case o == nil:
		q.in.Copy(*f)
	case q.keeps(o):
		q.in.Frames = append(q.in.Frames, *f)
		q.open += f.Len()
	default:
		q.in.Frames = append(q.in.Frames, packetio.Frame{
			Data: o.AppendTo(q.in.Alloc(o.Len()), &q.sealer), Port: f.Port, Origin: f.Origin,
		})
		o.Return()
	}
	return true
}

// keeps reports whether packet o may wait as it is, and not encoded.
func (q *queue) keeps(o *packetio.Open) bool {
	if q.newest != nil && q.newest.Shares(o) {
		return true
	}
	if q.runs == maxRuns {
		return false
	}
	q.runs, q.newest = q.runs+1, o
	return true
}

// renew says that `in` has no open packets.
func (q *queue) renew() { q.open, q.runs, q.newest = 0, 0, nil }

// take moves all frames to b. They are valid until the next call of take or drop.
func (q *queue) take(b *packetio.Batch, index int) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.last {
		packetio.ReturnAll(q.taken.Frames)
	}
	q.taken.Reset()
	q.in, q.taken = q.taken, q.in
	q.renew()
	q.n.Store(0)
	b.Frames = append(b.Frames, q.taken.Frames...)
	for i := range b.Frames {
		b.Frames[i].Port = index
	}
	return len(q.taken.Frames)
}

// drop discards all frames, and returns their number and that of their packets.
func (q *queue) drop() (frames, packets int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	frames, packets = len(q.in.Frames), packetio.PacketsIn(q.in.Frames)
	packetio.ReturnAll(q.in.Frames)
	q.in.Reset()
	q.renew()
	q.n.Store(0)
	return frames, packets
}
