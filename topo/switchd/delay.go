package switchd

import (
	"container/heap"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/capture/tap"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// delayed is a copy of a frame that a fault delays.
type delayed struct {
	at    clock.Time
	seq   uint64 // frames with the same time leave in the order of seq, the order of arrival
	port  int
	dir   tap.Direction
	frame packetio.Frame
	buf   []byte
}

// byTime is a heap of delayed frames, the first to leave on top; it implements heap.Interface.
type byTime []*delayed

func (h byTime) Len() int { return len(h) }
func (h byTime) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h byTime) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *byTime) Push(x any)   { *h = append(*h, x.(*delayed)) }

func (h *byTime) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	return e
}

// delays is a bounded heap of delayed frames, ordered by time. It reuses entries.
type delays struct {
	heap  byTime
	free  []*delayed
	seq   uint64
	bytes int
}

// next returns when the first frame is due; clock.Never: there is none.
func (d *delays) next() clock.Time {
	if len(d.heap) == 0 {
		return clock.Never
	}
	return d.heap[0].at
}

// add puts a copy of f into the heap. The result is false if there is no room.
func (d *delays) add(at clock.Time, port int, dir tap.Direction, f packetio.Frame) bool {
	if len(d.heap) >= MaxDelayed || d.bytes+len(f.Data) > maxDelayedBytes {
		return false
	}
	var e *delayed
	if n := len(d.free); n > 0 {
		e, d.free = d.free[n-1], d.free[:n-1]
	} else {
		e = new(delayed)
	}
	d.seq++
	e.at, e.seq, e.port, e.dir, e.frame = at, d.seq, port, dir, f
	e.buf = append(e.buf[:0], f.Data...)
	e.frame.Data = e.buf
	d.bytes += len(e.buf)
	heap.Push(&d.heap, e)
	return true
}

// forget removes the frames of a port, in both directions.
func (d *delays) forget(port int) {
	d.heap = slices.DeleteFunc(d.heap, func(e *delayed) bool {
		if e.port == port {
			d.bytes -= len(e.buf)
		}
		return e.port == port
	})
	heap.Init(&d.heap)
}

// pop removes the first frame. It copies the bytes into b, where they stay valid until b is reset.
func (d *delays) pop(b *packetio.Batch) delayed {
	e := heap.Pop(&d.heap).(*delayed)
	d.bytes -= len(e.buf)
	out := *e
	out.frame.Data = append(b.Alloc(len(e.buf)), e.buf...)
	out.buf = nil
	if cap(e.buf) <= keepBuf && len(d.free) < keepFree {
		d.free = append(d.free, e)
	}
	return out
}

// Bounds of the free entries that are kept for reuse (delays.free): at most keepFree entries, and
// none with a buffer of more than keepBuf bytes, so that the super-frames of a burst do not stay in
// memory.
const (
	keepBuf  = 16 << 10
	keepFree = 1024
)
