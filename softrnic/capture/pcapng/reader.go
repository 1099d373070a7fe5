package pcapng

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Packet is one packet of a file.
type Packet struct {
	// Time is the time of the packet in nanoseconds since 1970; 0 for a simple packet block, which has
	// no time.
	Time int64
	// Interface is the number of the interface in its section, from 0; 0 in a classic pcap file.
	Interface int
	// Name is the interface's name; empty if the file has none.
	Name     string
	LinkType LinkType
	// Data are the captured bytes. They are valid until the next call of Next.
	Data []byte
	// OrigLen is the packet's original length; more than len(Data) if it was not captured
	// completely.
	OrigLen int
	// Comments are the packet's comments, usually none or one.
	Comments []string
	// Offset is where the packet's block or record starts in the file.
	Offset int64
}

// Reasons of an Error.
var (
	ErrNotCapture = errors.New("neither a pcap nor a pcapng file")
	ErrTruncated  = errors.New("the file ends in the middle of a packet or block")
	ErrCorrupt    = errors.New("corrupt")
)

// Error says why reading a file failed, and at which offset. It wraps one of the reasons above or
// the io.Reader's error.
type Error struct {
	// Offset is the start of the block or record that is broken, in bytes from the start of the
	// file.
	Offset int64
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("at byte %d: %v", e.Offset, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// Reader reads the packets of a file of either format. After an error it can no longer be used.
type Reader struct {
	r      *bufio.Reader
	pos    int64 // bytes consumed
	start  int64 // offset of the current block or record
	order  binary.ByteOrder
	buf    []byte
	format interface{ next(p *Packet) error }
	lost   uint64
}

// Lost returns the number of packets that are not in the file, though its writer saw them on an interface, as
// the statistics say that Next has passed. A classic file has none, and 0.
func (r *Reader) Lost() uint64 { return r.lost }

// NewReader determines the format of r, and reads its file header.
func NewReader(r io.Reader) (*Reader, error) {
	rd := &Reader{r: bufio.NewReaderSize(r, 64<<10)}
	magic, err := rd.r.Peek(4)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: only %d bytes", ErrNotCapture, len(magic))
		}
		return nil, rd.fail(err)
	}
	if binary.LittleEndian.Uint32(magic) == blockSection { // this magic number is the same in both byte orders
		rd.format = &sections{Reader: rd}
		return rd, nil
	}
	c := &classic{Reader: rd}
	if err := c.readHeader(); err != nil {
		return nil, rd.fail(err)
	}
	rd.format = c
	return rd, nil
}

// Next reads the next packet into p. It returns io.EOF at the end of the file. If the file is
// broken, it returns all packets before the broken place, and then an *Error.
func (r *Reader) Next(p *Packet) error {
	*p = Packet{Comments: p.Comments[:0]}
	err := r.format.next(p)
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return r.fail(err)
}

// Buffered returns the number of bytes that Next can use without waiting for the io.Reader.
func (r *Reader) Buffered() int { return r.r.Buffered() }

func (r *Reader) fail(err error) error { return &Error{Offset: r.start, Err: err} }

// atEnd reports whether the file ends at the present position. It is called only where a block or
// record may start.
func (r *Reader) atEnd() bool {
	r.start = r.pos
	_, err := r.r.Peek(1)
	return errors.Is(err, io.EOF)
}

// read returns the next n bytes, which are valid until the next read. Callers limit n.
func (r *Reader) read(n int) ([]byte, error) {
	if cap(r.buf) < n {
		r.buf = make([]byte, max(n, 4<<10))
	}
	b := r.buf[:n]
	got, err := io.ReadFull(r.r, b)
	r.pos += int64(got)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = ErrTruncated
	}
	return b, err
}

func (r *Reader) skip(n int) error {
	got, err := r.r.Discard(n)
	r.pos += int64(got)
	if errors.Is(err, io.EOF) {
		err = ErrTruncated
	}
	return err
}

func tooLong(n uint32) error {
	return fmt.Errorf("%w: a packet of %d bytes, the limit is %d", ErrCorrupt, n, MaxPacket)
}
