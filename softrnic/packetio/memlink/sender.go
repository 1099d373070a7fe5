package memlink

import "github.com/rdmalab/rdmalab/softrnic/packetio"

// sender puts frames into one direction of a link. Only one goroutine at a time uses it.
//
// Each frame is contiguous in the data area of DataBytes. The frames in flight extend from offset
// first to offset next, perhaps across the end of the area. When no frame is in flight, the next
// one begins at offset 0 again. So if the receiver is fast enough, the link uses little memory,
// which stays in the processor's cache.
type sender struct {
	words
	mem  []byte
	tail uint64 // number of frames put
	head uint64 // number of frames that the receiver has taken, when it was last read
	// next is the offset of the next frame. first is the offset of the oldest frame in flight.
	next, first int
	// starts are the offsets of the frames in flight, by position.
	starts  [Slots]uint32
	dropped uint64
	// published is the tail that the receiver can see. It lags behind tail until publish is called.
	published uint64
}

func newSender(mem []byte) sender { return sender{words: wordsOf(mem), mem: mem} }

// refresh reads the receiver's position: the number of frames that it has taken. It returns false
// if the position is impossible: lower than before, or higher than the number of frames put.
func (s *sender) refresh() bool {
	head := s.words.head.Load()
	if head-s.head > s.tail-s.head {
		return false
	}
	s.head = head
	if head == s.tail {
		s.next, s.first = 0, 0
	} else {
		s.first = int(s.starts[head%Slots])
	}
	return true
}

// place reserves n bytes of the data area and returns their offset; ok is false if too few are
// free.
func (s *sender) place(n int) (offset int, ok bool) {
	n = (n + align - 1) &^ (align - 1)
	switch {
	case s.tail-s.head == Slots:
		return 0, false
	case s.tail == s.head: // refresh has set next to 0
	case s.next <= s.first: // the frames in flight wrap; the free memory is from next to first
		if s.next+n >= s.first {
			return 0, false
		}
	case s.next+n > DataBytes:
		if n >= s.first {
			return 0, false
		}
		s.next = 0
	}
	offset = s.next
	s.next += n
	return offset, true
}

// hot is an offset in the data, in bytes. When next is beyond it, a Send checks whether no frame is
// in flight, so that it can begin at 0 again, in memory that is still in the processor's cache.
const hot = 256 << 10

// begin is called before the frames of a Send. It returns false if the receiver's position is
// impossible (see refresh).
func (s *sender) begin() bool { return s.next < hot || s.refresh() }

// reserve returns the memory for a frame of n bytes, which the caller fills before it calls commit;
// nil if there is no room. ok is false if the receiver's position is impossible (see refresh).
func (s *sender) reserve(n int) (b []byte, offset int, ok bool) {
	offset, fits := s.place(n)
	if !fits {
		if !s.refresh() {
			return nil, 0, false
		}
		if offset, fits = s.place(n); !fits {
			return nil, 0, true
		}
	}
	at := offData + offset
	return s.mem[at : at+n : at+n], offset, true
}

// commit adds the frame that the caller has put at offset. The receiver sees it after the next
// publish.
func (s *sender) commit(offset, length int, f *packetio.Frame) {
	s.starts[s.tail%Slots] = uint32(offset)
	putEntry(entry(s.mem, s.tail), offset, length, f)
	s.tail++
}

// drop adds to the number of packets that were dropped because the ring was full.
func (s *sender) drop(packets int) {
	s.dropped += uint64(packets)
	s.words.dropped.Store(s.dropped)
}

// publish publishes the frames that were put, and reports whether the receiver must be woken.
func (s *sender) publish() (wake bool) {
	if s.published == s.tail {
		return false
	}
	s.published = s.tail
	s.words.tail.Store(s.tail)
	return s.asleep.Load() != 0 && s.asleep.Swap(0) != 0
}
