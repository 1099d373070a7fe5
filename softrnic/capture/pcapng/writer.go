package pcapng

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// flushAt is the number of bytes that a Writer collects before it writes them.
const flushAt = 64 << 10

// Errors of an invalid call. Errors of the io.Writer are returned unchanged.
var (
	ErrTooLong     = errors.New("longer than a capture file allows")
	ErrNoInterface = errors.New("no such interface: call AddInterface first")
)

// Writer writes one pcapng section. It collects blocks in memory: call Flush at the end, or when a
// reader waits. After an error of the io.Writer every call returns that error. A Writer is used by
// one goroutine at a time, and allocates nothing per packet once its buffer has grown.
type Writer struct {
	w          io.Writer
	buf        []byte
	interfaces int
	err        error
}

// NewWriter returns a Writer that has written the section header.
func NewWriter(w io.Writer) (*Writer, error) {
	pw := &Writer{w: w, buf: make([]byte, 0, flushAt+MaxPacket)}
	start := pw.begin(blockSection)
	pw.u32(magicSection)
	pw.u32(1)          // version 1.0
	pw.u32(0xffffffff) // section length: not known
	pw.u32(0xffffffff) // the upper half of the length
	pw.option(optAppl, "rdmalab")
	pw.u32(uint32(optEnd))
	pw.end(start)
	return pw, pw.Flush()
}

// AddInterface adds an interface and returns its id for WritePacket: 0, 1, 2 and so on. The times
// of its packets are in nanoseconds.
func (w *Writer) AddInterface(name string, linkType LinkType) (id int, err error) {
	const nanoseconds = 9 // 10^-9 s
	switch {
	case w.err != nil:
		return 0, w.err
	case len(name) > maxComment:
		return 0, fmt.Errorf("interface name of %d bytes: %w", len(name), ErrTooLong)
	case w.interfaces == maxInterfaces:
		return 0, fmt.Errorf("interface %q: a capture file has at most %d interfaces: %w", name, maxInterfaces, ErrTooLong)
	}
	start := w.begin(blockInterface)
	w.u32(uint32(linkType))
	w.u32(0) // packets of any length
	w.option(optName, name)
	w.option(optTSResol, string([]byte{nanoseconds}))
	w.u32(uint32(optEnd))
	w.end(start)
	w.interfaces++
	return w.interfaces - 1, w.flushIfFull()
}

// WritePacket writes data as a packet of interface id at unixNanos nanoseconds since 1970. Times
// before 1970 become 0, because the format cannot express them. An empty comment is left out. Data
// and comment are copied.
func (w *Writer) WritePacket(id int, unixNanos int64, data []byte, comment string) error {
	return w.WriteTruncated(id, unixNanos, data, len(data), comment)
}

// WriteTruncated is WritePacket for a packet that was not captured completely: data has its first
// bytes, length is its original length.
func (w *Writer) WriteTruncated(id int, unixNanos int64, data []byte, length int, comment string) error {
	if w.err == nil && len(data) > MaxPacket {
		return fmt.Errorf("packet of %d bytes: %w", len(data), ErrTooLong)
	}
	start, err := w.about(blockEnhanced, id, unixNanos, comment)
	if err != nil {
		return err
	}
	w.u32(uint32(len(data)))
	w.u32(uint32(max(length, len(data))))
	w.buf = append(w.buf, data...)
	w.align(len(data))
	if comment != "" {
		w.option(optComment, comment)
		w.u32(uint32(optEnd))
	}
	w.end(start)
	return w.flushIfFull()
}

// about begins a block about interface id, with a time. It returns an error if the block cannot be
// written, or cannot have the comment.
func (w *Writer) about(kind uint32, id int, unixNanos int64, comment string) (start int, err error) {
	switch {
	case w.err != nil:
		return 0, w.err
	case id < 0 || id >= w.interfaces:
		return 0, fmt.Errorf("interface %d: %w", id, ErrNoInterface)
	case len(comment) > maxComment:
		return 0, fmt.Errorf("comment of %d bytes: %w", len(comment), ErrTooLong)
	}
	ticks := uint64(max(unixNanos, 0))
	start = w.begin(kind)
	w.u32(uint32(id))
	w.u32(uint32(ticks >> 32))
	w.u32(uint32(ticks))
	return start, nil
}

// Flush writes all collected blocks to the io.Writer.
func (w *Writer) Flush() error {
	if w.err != nil || len(w.buf) == 0 {
		return w.err
	}
	n, err := w.w.Write(w.buf)
	if err == nil && n < len(w.buf) {
		err = io.ErrShortWrite
	}
	w.buf, w.err = w.buf[:0], err
	return err
}

func (w *Writer) flushIfFull() error {
	if len(w.buf) < flushAt {
		return nil
	}
	return w.Flush()
}

// begin appends a block's header and returns the offset at which the block starts. end fills in the
// length.
func (w *Writer) begin(kind uint32) (start int) {
	start = len(w.buf)
	w.u32(kind)
	w.u32(0)
	return start
}

func (w *Writer) end(start int) {
	n := uint32(len(w.buf) - start + 4)
	w.u32(n)
	binary.LittleEndian.PutUint32(w.buf[start+4:], n)
}

func (w *Writer) option(code uint16, value string) {
	w.buf = binary.LittleEndian.AppendUint16(w.buf, code)
	w.buf = binary.LittleEndian.AppendUint16(w.buf, uint16(len(value)))
	w.buf = append(w.buf, value...)
	w.align(len(value))
}

// align appends zeros behind a field of n bytes, so that its length becomes a multiple of 4.
func (w *Writer) align(n int) {
	var zero [3]byte
	w.buf = append(w.buf, zero[:pad4(n)-n]...)
}

func (w *Writer) u32(v uint32) { w.buf = binary.LittleEndian.AppendUint32(w.buf, v) }
