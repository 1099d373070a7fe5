package paced

import (
	"container/heap"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// Bounds of one NIC or switch: how many frames may wait, and how many bytes these may have. The memory of
// frames that have left is kept for others up to these bounds.
const (
	MaxHeld      = 1 << 15
	MaxHeldBytes = 64 << 20
)

// stage is what a waiting frame waits for.
type stage uint8

const (
	stalled stage = iota // that the NIC begins to work on it
	inside               // that it takes effect in the NIC
	leaving              // that it leaves the NIC or switch that has made it
	onLine               // that it arrives at the other end of the link
)

type held struct {
	at    clock.Time
	seq   uint64 // frames of the same time leave in the order in which they began to wait
	stage stage
	frame packetio.Frame // its bytes are in buf
	buf   []byte
}

// hold is a heap of waiting frames, the first to go on top. It reuses the memory of entries.
type hold struct {
	list  byTime
	free  []*held
	bytes int // of the frames in list
	seq   uint64
}

// byTime implements heap.Interface.
type byTime []*held

func (h byTime) Len() int { return len(h) }
func (h byTime) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h byTime) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *byTime) Push(x any)   { *h = append(*h, x.(*held)) }

func (h *byTime) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	return e
}

// next returns the time of the first frame; clock.Never means that none waits.
func (h *hold) next() clock.Time {
	if len(h.list) == 0 {
		return clock.Never
	}
	return h.list[0].at
}

// add lets a copy of f wait until `at`. It returns false if there is no room.
func (h *hold) add(at clock.Time, s stage, f packetio.Frame) bool {
	if len(h.list) >= MaxHeld || h.bytes+len(f.Data) > MaxHeldBytes {
		return false
	}
	e := new(held)
	if n := len(h.free); n > 0 {
		e, h.free = h.free[n-1], h.free[:n-1]
	}
	e.buf = append(e.buf[:0], f.Data...)
	f.Data = e.buf
	e.frame = f
	h.bytes += len(e.buf)
	h.push(e, at, s)
	return true
}

// forget removes the frames of a port.
func (h *hold) forget(port int) {
	h.list = slices.DeleteFunc(h.list, func(e *held) bool {
		if e.frame.Port == port {
			h.keep(e)
		}
		return e.frame.Port == port
	})
	heap.Init(&h.list)
}

func (h *hold) push(e *held, at clock.Time, s stage) {
	h.seq++
	e.at, e.stage, e.seq = at, s, h.seq
	heap.Push(&h.list, e)
}

// pop removes the first frame. The caller passes it to push, give or keep.
func (h *hold) pop() *held { return heap.Pop(&h.list).(*held) }

// give copies the frame of e into b, and keeps the memory of e for another frame.
func (h *hold) give(e *held, b *packetio.Batch) {
	b.Copy(e.frame)
	h.keep(e)
}

// keep keeps the memory of e, whose frame has left or is dropped, for another frame.
func (h *hold) keep(e *held) {
	h.bytes -= len(e.buf)
	if cap(e.buf) <= keepBuf && len(h.free) < keepFree {
		h.free = append(h.free, e)
	}
}

// Bounds of the memory that is kept for other frames: super-frames of a burst do not stay in memory.
const (
	keepFree = 4096
	keepBuf  = 4096
)
