package pcapng

import (
	"bufio"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// Bounds of a Merger.
const (
	// Hold is how long a Merger holds a packet at most until packets of the other streams have come that
	// are earlier.
	Hold = 500 * time.Millisecond
	// maxHeld is how many bytes of packets a Merger holds. It writes the earliest when it has more.
	maxHeld = 64 << 20
)

// MergeSource is a stream of a Merger, which a Writer has made: little-endian, with times in nanoseconds.
type MergeSource struct {
	// Rename returns the name of an interface in the merged file.
	Rename func(name string) string
	// Ahead is how far the clock of the source is ahead of that of the merged file.
	Ahead time.Duration
}

// Merger writes the blocks of several streams as one section, in the order of their times, which it
// corrects. Packets that come later than Hold behind later ones are out of order. Its callers read the
// streams (Blocks), and tell it the time.
type Merger struct {
	out     *Writer
	sources []mergeStream
	held    heldBlocks
	bytes   int
	taken   uint64
}

// mergeStream is what a Merger knows of a stream.
type mergeStream struct {
	MergeSource
	ids    []int // of its interfaces, in the merged file
	latest int64 // corrected time of its last packet
	ended  bool
}

// heldBlock is a packet or a statistics block that waits.
type heldBlock struct {
	at      int64
	nth     uint64 // in the order of arrival
	arrived time.Duration
	block   []byte
}

// NewMerger returns a Merger of streams that writes to w.
func NewMerger(w io.Writer, sources []MergeSource) (*Merger, error) {
	out, err := NewWriter(w)
	if err != nil {
		return nil, err
	}
	m := &Merger{out: out}
	for _, s := range sources {
		m.sources = append(m.sources, mergeStream{MergeSource: s, latest: math.MinInt64})
	}
	return m, nil
}

// SetAhead changes Ahead of a stream, for the blocks that are taken later.
func (m *Merger) SetAhead(source int, ahead time.Duration) { m.sources[source].Ahead = ahead }

// End says that a stream has no more blocks.
func (m *Merger) End(source int) { m.sources[source].ended = true }

// Take takes the next block of a stream, which has arrived at the time now, and copies it. The error wraps
// ErrCorrupt, or is that of the io.Writer.
func (m *Merger) Take(source int, block []byte, now time.Duration) error {
	s := &m.sources[source]
	if len(block) < blockFrameLen {
		return fmt.Errorf("%w: a block of %d bytes", ErrCorrupt, len(block))
	}
	body := block[blockHeaderLen : len(block)-4]
	fixed := enhancedLen
	switch binary.LittleEndian.Uint32(block) {
	case blockInterface:
		return m.addInterface(s, body)
	case blockEnhanced:
	case blockStatistics:
		fixed = 12
	default:
		return nil // the header of the section, which the merged file has already
	}
	if len(body) < fixed {
		return fmt.Errorf("%w: a block with a body of %d bytes", ErrCorrupt, len(body))
	}
	id := binary.LittleEndian.Uint32(body)
	if uint64(id) >= uint64(len(s.ids)) {
		return fmt.Errorf("%w: a packet of interface %d, which was not described", ErrCorrupt, id)
	}
	at := int64(min(uint64(binary.LittleEndian.Uint32(body[4:]))<<32|uint64(binary.LittleEndian.Uint32(body[8:])), math.MaxInt64))
	at = max(0, at-int64(s.Ahead))
	own := append([]byte(nil), block...)
	binary.LittleEndian.PutUint32(own[blockHeaderLen:], uint32(s.ids[id]))
	binary.LittleEndian.PutUint32(own[blockHeaderLen+4:], uint32(uint64(at)>>32))
	binary.LittleEndian.PutUint32(own[blockHeaderLen+8:], uint32(at))
	m.taken++
	heap.Push(&m.held, heldBlock{at, m.taken, now, own})
	m.bytes += len(own)
	s.latest = max(s.latest, at)
	for m.bytes > maxHeld {
		if err := m.writeFirst(); err != nil {
			return err
		}
	}
	return nil
}

// addInterface describes an interface of a stream in the merged file.
func (m *Merger) addInterface(s *mergeStream, body []byte) error {
	own := sections{Reader: &Reader{order: binary.LittleEndian}}
	if err := own.addInterface(body); err != nil {
		return err
	}
	f := &own.interfaces[0]
	if f.resol != 9 || f.offset != 0 {
		return fmt.Errorf("%w: interface %.40q has times that are no nanoseconds", ErrCorrupt, f.name)
	}
	id, err := m.out.AddInterface(s.Rename(f.name), f.linkType)
	if err != nil {
		return err
	}
	s.ids = append(s.ids, id)
	return nil
}

// Write writes the packets behind which no earlier one can come, and those that have waited for Hold, as of
// the time now. Interfaces of all streams should have been taken before.
func (m *Merger) Write(now time.Duration) error {
	until := int64(math.MaxInt64)
	for i := range m.sources {
		if s := &m.sources[i]; !s.ended {
			until = min(until, s.latest)
		}
	}
	for i := range m.held {
		if h := &m.held[i]; now-h.arrived >= Hold {
			until = max(until, h.at)
		}
	}
	for len(m.held) > 0 && m.held[0].at <= until {
		if err := m.writeFirst(); err != nil {
			return err
		}
	}
	return m.out.Flush()
}

func (m *Merger) writeFirst() error {
	h := heap.Pop(&m.held).(heldBlock)
	m.bytes -= len(h.block)
	return m.out.copy(h.block)
}

// copy writes a block that is complete.
func (w *Writer) copy(block []byte) error {
	if w.err != nil {
		return w.err
	}
	w.buf = append(w.buf, block...)
	return w.flushIfFull()
}

// heldBlocks is a heap by time, and of the same time by arrival.
type heldBlocks []heldBlock

func (h heldBlocks) Len() int { return len(h) }
func (h heldBlocks) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].nth < h[j].nth
}
func (h heldBlocks) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *heldBlocks) Push(x any)   { *h = append(*h, x.(heldBlock)) }
func (h *heldBlocks) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = heldBlock{}
	*h = (*h)[:last]
	return x
}

// Blocks calls f with each block of a little-endian pcapng stream, as a Writer makes it. The block is valid
// until f returns. It returns nil at the end of the stream, or the error of f or of the stream.
func Blocks(src io.Reader, f func(block []byte) error) error {
	in := bufio.NewReaderSize(src, 64<<10)
	var block []byte
	var err error
	for {
		if block, err = readBlock(in, block); errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := f(block); err != nil {
			return err
		}
	}
}
