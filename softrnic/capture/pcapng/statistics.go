package pcapng

import (
	"encoding/binary"
	"fmt"
)

const blockStatistics uint32 = 5

// Options of an interface statistics block.
const (
	optReceived uint16 = 4 // packets seen on the interface
	optDropped  uint16 = 5 // packets seen on the interface that are not in the file
)

// WriteStatistics writes how many packets interface id has carried since the capture began, and how
// many of them are not in this file because its writer could not keep up. An empty comment is left
// out. Only the last such block of an interface counts.
func (w *Writer) WriteStatistics(id int, unixNanos int64, received, dropped uint64, comment string) error {
	switch {
	case w.err != nil:
		return w.err
	case id < 0 || id >= w.interfaces:
		return fmt.Errorf("interface %d: %w", id, ErrNoInterface)
	case len(comment) > maxComment:
		return fmt.Errorf("comment of %d bytes: %w", len(comment), ErrTooLong)
	}
	ticks := uint64(max(unixNanos, 0))
	start := w.begin(blockStatistics)
	w.u32(uint32(id))
	w.u32(uint32(ticks >> 32))
	w.u32(uint32(ticks))
	var number [8]byte
	binary.LittleEndian.PutUint64(number[:], received)
	w.option(optReceived, string(number[:]))
	binary.LittleEndian.PutUint64(number[:], dropped)
	w.option(optDropped, string(number[:]))
	if comment != "" {
		w.option(optComment, comment)
	}
	w.u32(uint32(optEnd))
	w.end(start)
	return w.flushIfFull()
}
