package memlink

import (
	"sync/atomic"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// receiver takes frames from one direction of a link. Only one goroutine at a time uses it, except
// for ready and asleep.
type receiver struct {
	words
	mem []byte
	// head is the number of frames taken. ready reads it concurrently with take.
	head atomic.Uint64
}

// take appends the available frames to b, as far as they fit; it copies their bytes to buf. It
// returns the number of malformed entries. ok is false if the sender's position is impossible: more
// than Slots frames ahead of the receiver's.
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

// ready reports whether there are frames.
func (r *receiver) ready() bool { return r.words.tail.Load() != r.head.Load() }

// untaken returns the number of packets in the ring that were not taken. It is called when the
// receiver is no longer used; the sender may still be in use.
func (r *receiver) untaken() (packets uint64) {
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
		packets += uint64(f.Packets())
	}
	return packets
}
