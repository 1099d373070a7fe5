package memlink

import (
	"sync/atomic"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// receiver takes frames out of one direction of a link. One goroutine at a time uses it, except for
// ready and asleep.
type receiver struct {
	words
	mem []byte
	// head is how many frames were taken. ready reads it beside take.
	head atomic.Uint64
}

// take appends frames to b, with copies of their bytes in buf, as many as there are and fit, and
// returns how many entries were malformed. ok is false if the sender's word is wrong.
func (r *receiver) take(b *packetio.Batch, port int, buf []byte) (bad uint64, ok bool) {
	head := r.head.Load()
	n := r.words.tail.Load() - head
	if n > Slots {
		return 0, false
	}
	n = min(n, batchSize)
	used := 0
	end := head + n
	for ; head != end; head++ {
		offset, length, f, ok := getEntry(entry(r.mem, head))
		if !ok {
			bad++
			continue
		}
		if length > len(buf)-used {
			break
		}
		f.Data = buf[used : used+length : used+length]
		f.Port = port
		copy(f.Data, r.mem[offData+offset:])
		used += length
		b.Frames = append(b.Frames, f)
	}
	if head != r.head.Load() {
		r.head.Store(head)
		r.words.head.Store(head)
	}
	return bad, true
}

// ready reports whether frames wait.
func (r *receiver) ready() bool { return r.words.tail.Load() != r.head.Load() }

// left counts the packets that were not taken. Nothing else uses r any more; the sender may.
func (r *receiver) left() (packets uint64) {
	head := r.head.Load()
	n := r.words.tail.Load() - head
	if n > Slots {
		return 0
	}
	var buf []byte
	for end := head + n; head != end; head++ {
		offset, length, f, ok := getEntry(entry(r.mem, head))
		if !ok {
			packets++
			continue
		}
		buf = append(buf[:0], r.mem[offData+offset:][:length]...)
		f.Data = buf
		packets += uint64(packetsOf(&f))
	}
	return packets
}
