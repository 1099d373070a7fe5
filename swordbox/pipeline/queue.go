package pipeline

import "github.com/rdmalab/rdmalab/softrnic/packetio"

// Queue is the bounded egress queue of one port. Frames wait in it between the pipeline and the
// link until the caller calls Flush. The queue holds references to frames and copies none.
type Queue struct {
	// MaxPackets and MaxBytes bound the queue; 0 means no bound. An empty queue accepts one frame
	// of any size.
	MaxPackets, MaxBytes int

	packets, bytes int
	batch          packetio.Batch
}

// Offer appends f if there is room, and reports whether there was.
func (q *Queue) Offer(f packetio.Frame) bool {
	n, size := f.Packets(), f.Len()
	if q.packets > 0 && (q.MaxPackets > 0 && q.packets+n > q.MaxPackets || q.MaxBytes > 0 && q.bytes+size > q.MaxBytes) {
		return false
	}
	q.packets += n
	q.bytes += size
	q.batch.Frames = append(q.batch.Frames, f)
	return true
}

func (q *Queue) Len() int { return q.packets }

// Flush sends the queue to a port and empties it. packets and bytes are what it tried to send.
// refused is how many packets the link refused; if it refused only a part of the frames, a
// super-frame counts as one.
func (q *Queue) Flush(port packetio.Port) (packets, bytes, refused int, err error) {
	if len(q.batch.Frames) == 0 {
		return 0, 0, 0, nil
	}
	packets, bytes = q.packets, q.bytes
	n, err := port.Send(&q.batch)
	if refused = len(q.batch.Frames) - n; n == 0 {
		refused = packets
	}
	q.empty()
	return packets, bytes, refused, err
}

// Discard drops what is in the queue and returns how many packets that were.
func (q *Queue) Discard() int {
	n := q.packets
	packetio.ReturnAll(q.batch.Frames)
	q.empty()
	return n
}

func (q *Queue) empty() {
	q.batch.Reset()
	q.packets, q.bytes = 0, 0
}
