package memlink

import "github.com/rdmalab/rdmalab/softrnic/packetio"

// sender puts frames into one direction of a link. One goroutine at a time uses it.
//
// Frames lie in the data one behind the other. What is in flight reaches from first to next, maybe
// over the end; when nothing is in flight, it begins at 0 again, so that a link whose receiver keeps
// up stays in the cache.
type sender struct {
	words
	mem  []byte
	tail uint64 // frames put
	head uint64 // frames that the receiver is known to have taken
	// next is where the next frame goes, first where the oldest in flight begins.
	next, first int
	// starts are where the frames in flight begin, by position.
	starts  [Slots]uint32
	dropped uint64
	// public is the tail that the receiver can see.
	public uint64
}

func newSender(mem []byte) sender { return sender{words: wordsOf(mem), mem: mem} }

// refresh reads how many frames the receiver has taken. False: the receiver's word is wrong.
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

// place finds room for n bytes; false if there is none.
func (s *sender) place(n int) (offset int, ok bool) {
	n = (n + align - 1) &^ (align - 1)
	switch {
	case s.tail-s.head == Slots:
		return 0, false
	case s.tail == s.head: // refresh has set next to 0
	case s.next <= s.first: // over the end; next does not reach first, or the data would look empty
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

// hot is how many bytes a Send puts behind each other before it asks whether it may begin at 0 again.
const hot = 256 << 10

// begin is called before the frames of a Send. False: the receiver's word is wrong.
func (s *sender) begin() bool { return s.next < hot || s.refresh() }

// reserve returns the memory for a frame of n bytes, which the caller fills before it calls commit;
// nil: there is no room. ok is false if the receiver's word is wrong.
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

// commit makes the frame that was put at offset the next one.
func (s *sender) commit(offset, length int, f *packetio.Frame) {
	s.starts[s.tail%Slots] = uint32(offset)
	putEntry(entry(s.mem, s.tail), offset, length, f)
	s.tail++
}

// drop counts packets for which there was no room.
func (s *sender) drop(packets int) {
	s.dropped += uint64(packets)
	s.words.dropped.Store(s.dropped)
}

// publish shows the receiver what was put, and reports whether it has to be woken.
func (s *sender) publish() (wake bool) {
	if s.public == s.tail {
		return false
	}
	s.public = s.tail
	s.words.tail.Store(s.tail)
	return s.asleep.Load() != 0 && s.asleep.Swap(0) != 0
}
