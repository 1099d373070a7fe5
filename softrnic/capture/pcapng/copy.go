package pcapng

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Copied has the results of a Copy.
type Copied struct {
	// Packets is the number of copied packets. Commented is how many of them have a comment.
	Packets, Commented uint64
	// Lost is the number of missing packets that the source reports, over all interfaces.
	Lost uint64
	// Bytes is the length of the copied blocks.
	Bytes int64
}

// WriteError is an error of the destination of a Copy.
type WriteError struct{ Err error }

func (e *WriteError) Error() string { return "write capture: " + e.Err.Error() }

func (e *WriteError) Unwrap() error { return e.Err }

// Copy copies a little-endian pcapng stream, as a Writer makes it, block by block until its end or
// until limit packets (0 means no limit) have been copied. dst gets only whole blocks, so that it
// contains a readable file in any case. When Copy has used all bytes that it has read from src, it
// writes the collected blocks to dst before it reads on. The error is that of src, ErrTruncated, a
// *WriteError, or wraps ErrCorrupt.
func Copy(dst io.Writer, src io.Reader, limit uint64) (c Copied, err error) {
	in := bufio.NewReaderSize(src, 64<<10)
	out := bufio.NewWriterSize(dst, 64<<10)
	var lost dropped
	var block []byte
	for limit == 0 || c.Packets < limit {
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return c, &WriteError{err}
			}
		}
		block, err = readBlock(in, block)
		if err != nil {
			break
		}
		if _, err := out.Write(block); err != nil {
			return c, &WriteError{err}
		}
		c.Bytes += int64(len(block))
		c.count(block, &lost)
	}
	if ferr := out.Flush(); ferr != nil {
		return c, &WriteError{ferr}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return c, err
}

// readBlock reads a whole block into b. It returns io.EOF if the stream ends between two blocks.
func readBlock(in *bufio.Reader, b []byte) ([]byte, error) {
	head, err := in.Peek(blockHeaderLen)
	if err != nil {
		if errors.Is(err, io.EOF) && len(head) > 0 {
			err = ErrTruncated
		}
		return b, err
	}
	n := binary.LittleEndian.Uint32(head[4:])
	if n < blockFrameLen || n%4 != 0 || n > maxBlock {
		return b, fmt.Errorf("%w: a block of %d bytes", ErrCorrupt, n)
	}
	if cap(b) < int(n) {
		b = make([]byte, n)
	}
	b = b[:n]
	if _, err := io.ReadFull(in, b); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = ErrTruncated
		}
		return b, err
	}
	return b, nil
}

func (c *Copied) count(b []byte, lost *dropped) {
	body := b[blockHeaderLen : len(b)-4]
	switch binary.LittleEndian.Uint32(b) {
	case blockEnhanced:
		c.Packets++
		if len(body) < enhancedLen {
			return
		}
		kept := uint64(binary.LittleEndian.Uint32(body[12:]))
		if enhancedLen+(kept+3)&^3 < uint64(len(body)) { // options follow, which can only be a comment: a Writer writes no others
			c.Commented++
		}
	case blockStatistics:
		c.Lost += lost.of(body, binary.LittleEndian)
	}
}
