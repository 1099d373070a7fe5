package switchd

import (
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

func (a *delayed) before(b *delayed) bool { return a.at < b.at || (a.at == b.at && a.seq < b.seq) }

// delays is a bounded heap of delayed frames, ordered by time. It reuses entries.
type delays struct {
	heap  []*delayed
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
	d.push(e)
	return true
}

// push puts an entry into the heap.
func (d *delays) push(e *delayed) {
	d.heap = append(d.heap, e)
	for i := len(d.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !d.heap[i].before(d.heap[parent]) {
			break
		}
		d.heap[i], d.heap[parent] = d.heap[parent], d.heap[i]
		i = parent
	}
}

// forget removes the frames of a port, in both directions.
func (d *delays) forget(port int) {
	all := d.heap
	d.heap = nil
	for _, e := range all {
		if e.port == port {
			d.bytes -= len(e.buf)
		} else {
			d.push(e)
		}
	}
}

// pop removes the first frame. It copies the bytes into b, where they stay valid until b is reset.
func (d *delays) pop(b *packetio.Batch) delayed {
	e := d.heap[0]
	last := len(d.heap) - 1
	d.heap[0], d.heap[last] = d.heap[last], nil
	d.heap = d.heap[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			break
		}
		if c+1 < last && d.heap[c+1].before(d.heap[c]) {
			c++
		}
		if !d.heap[c].before(d.heap[i]) {
			break
		}
		d.heap[i], d.heap[c] = d.heap[c], d.heap[i]
		i = c
	}
	d.bytes -= len(e.buf)
	out := *e
	out.frame.Data = append(b.Alloc(len(e.buf)), e.buf...)
	out.buf = nil
	if cap(e.buf) <= keepBuf && len(d.free) < keepFree {
		d.free = append(d.free, e)
	}
	return out
}

// Bounds of the entries that delays keeps for reuse: at most keepFree entries. It does not keep
// buffers of more than keepBuf bytes, so that the super-frames of a burst do not stay in memory.
const (
	keepBuf  = 16 << 10
	keepFree = 1024
)
