package tap

import (
	"encoding/binary"
	"sync"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// reader is the queue between the switch and one capture: records in a byte buffer, which the
// capture exchanges for an empty one.
type reader struct {
	ids       []int         // the capture's number of an interface, by link*2+direction; -1 means that it is not captured
	snaplen   int           // 0 means whole packets
	commented bool          // only packets with a comment
	ready     chan struct{} // notifies the capture that packets are queued; capacity 1

	mu     sync.Mutex // guards the fields below
	buf    []byte     // queued records
	counts []count    // number of packets, by interface
}

// count has the number of packets on one interface that the capture selects, and how many of them
// the capture has lost.
type count struct{ seen, lost uint64 }

// recordHeader is the length of the header of a record in the queue, in bytes: time, interface,
// length of the comment, captured and original length. Data and comment follow the header.
const recordHeader = 8 + 2 + 2 + 4 + 4

// add queues the packets of frame f, or counts them as lost if the queue is full.
func (r *reader) add(unixNanos int64, id int, f *packetio.Frame, comment string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !f.Splittable() {
		if r.begin(unixNanos, id, len(f.Data), comment) {
			r.buf = append(r.buf, f.Data...)
			r.end(len(f.Data), comment)
		}
	} else {
		for i := range f.Packets() {
			if r.begin(unixNanos, id, f.SegSize, comment) {
				at := len(r.buf)
				r.buf = f.AppendSegment(r.buf, i)
				r.end(len(r.buf)-at, comment)
			}
		}
	}
	select {
	case r.ready <- struct{}{}:
	default: // the reader was already notified
	}
}

// begin begins a record with about n bytes of data. If the queue is full, it counts the packet as
// lost and returns false.
func (r *reader) begin(unixNanos int64, id, n int, comment string) bool {
	r.counts[id].seen++
	if len(r.buf)+recordHeader+n+len(comment) > queueBytes {
		r.counts[id].lost++
		return false
	}
	r.buf = binary.NativeEndian.AppendUint64(r.buf, uint64(unixNanos))
	r.buf = binary.NativeEndian.AppendUint16(r.buf, uint16(id))
	r.buf = binary.NativeEndian.AppendUint16(r.buf, uint16(len(comment)))
	r.buf = binary.NativeEndian.AppendUint64(r.buf, 0) // both lengths; end fills them in
	return true
}

// end truncates the n bytes of data just appended to snaplen, and completes the record.
func (r *reader) end(n int, comment string) {
	kept := n
	if r.snaplen > 0 && n > r.snaplen {
		kept = r.snaplen
		r.buf = r.buf[:len(r.buf)-n+kept]
	}
	lengths := r.buf[len(r.buf)-kept-8:]
	binary.NativeEndian.PutUint32(lengths, uint32(kept))
	binary.NativeEndian.PutUint32(lengths[4:], uint32(n))
	r.buf = append(r.buf, comment...)
}

// swap returns the queued packets and installs an empty buffer. It copies the counters to counts.
func (r *reader) swap(empty []byte, counts []count) (full []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	full, r.buf = r.buf, empty[:0]
	copy(counts, r.counts)
	return full
}

// record is one packet that was read from the buffer.
type record struct {
	unixNanos int64
	id        int
	data      []byte
	length    int // original length
	comment   string
}

// next splits the bytes of a queue, which must not be empty, into their first record and the rest.
func next(b []byte) (rec record, rest []byte) {
	rec.unixNanos = int64(binary.NativeEndian.Uint64(b))
	rec.id = int(binary.NativeEndian.Uint16(b[8:]))
	comment := int(binary.NativeEndian.Uint16(b[10:]))
	n := int(binary.NativeEndian.Uint32(b[12:]))
	rec.length = int(binary.NativeEndian.Uint32(b[16:]))
	b = b[recordHeader:]
	rec.data = b[:n]
	rec.comment = string(b[n : n+comment])
	return rec, b[n+comment:]
}
