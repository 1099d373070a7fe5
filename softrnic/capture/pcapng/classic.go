package pcapng

import (
	"encoding/binary"
	"fmt"
	"io"
)

// classic reads the older pcap format: one file header, then records.
type classic struct {
	*Reader
	linkType LinkType
	unit     int64 // a time is in seconds and in units of this many nanoseconds: 1 or 1000
}

const (
	classicHeaderLen = 24
	classicRecordLen = 16
	gzipMagic        = 0x8b1f
)

// readHeader reads the file header. It determines byte order and time unit from the magic number,
// and reads the link type.
func (c *classic) readHeader() error {
	b, err := c.r.Peek(4)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		order binary.ByteOrder
		magic uint32
		unit  int64
	}{
		{binary.LittleEndian, magicMicros, 1000},
		{binary.BigEndian, magicMicros, 1000},
		{binary.LittleEndian, magicNanos, 1},
		{binary.BigEndian, magicNanos, 1},
	} {
		if f.order.Uint32(b) == f.magic {
			c.order, c.unit = f.order, f.unit
		}
	}
	if c.order == nil {
		if binary.LittleEndian.Uint16(b) == gzipMagic {
			return fmt.Errorf("%w: it is compressed, unpack it with gunzip", ErrNotCapture)
		}
		return fmt.Errorf("%w: it starts with the bytes % x", ErrNotCapture, b)
	}
	if b, err = c.read(classicHeaderLen); err != nil {
		return err
	}
	c.linkType = LinkType(c.order.Uint32(b[20:])) // the upper 16 bits describe the frame check sequence
	return nil
}

func (c *classic) next(p *Packet) error {
	if c.atEnd() {
		return io.EOF
	}
	h, err := c.read(classicRecordLen)
	if err != nil {
		return err
	}
	seconds, fraction := c.order.Uint32(h), c.order.Uint32(h[4:])
	captured, original := c.order.Uint32(h[8:]), c.order.Uint32(h[12:])
	if captured > MaxPacket {
		return tooLong(captured)
	}
	if p.Data, err = c.read(int(captured)); err != nil {
		return err
	}
	p.Time = int64(seconds)*1e9 + int64(fraction)*c.unit
	p.LinkType = c.linkType
	p.OrigLen = int(original)
	p.Offset = c.start
	return nil
}
