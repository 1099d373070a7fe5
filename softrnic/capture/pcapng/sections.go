package pcapng

import (
	"encoding/binary"
	"fmt"
	"io"
)

// sections reads the pcapng format: a file of sections, which consist of blocks.
type sections struct {
	*Reader
	interfaces []iface
	counted    dropped // of this section
}

// next reads blocks until one has a packet.
func (s *sections) next(p *Packet) error {
	for !s.atEnd() {
		found, err := s.block(p)
		if err != nil {
			return err
		}
		if found {
			p.Offset = s.start
			return nil
		}
	}
	return io.EOF
}

// block reads one block, and reports whether the block has a packet.
func (s *sections) block(p *Packet) (bool, error) {
	h, err := s.read(blockHeaderLen)
	if err != nil {
		return false, err
	}
	if binary.LittleEndian.Uint32(h) == blockSection {
		return false, s.section([4]byte(h[4:]))
	}
	if s.order == nil {
		return false, fmt.Errorf("%w: no section header before the first block", ErrCorrupt)
	}
	kind := s.order.Uint32(h)
	n, err := bodyLen(s.order.Uint32(h[4:]))
	if err != nil {
		return false, err
	}
	if kind != blockInterface && kind != blockSimple && kind != blockEnhanced && (kind != blockStatistics || n > maxBlock) {
		return false, s.skip(n + 4)
	}
	body, err := s.body(n)
	if err != nil {
		return false, err
	}
	switch kind {
	case blockInterface:
		return false, s.addInterface(body)
	case blockStatistics:
		s.lost += s.counted.of(body, s.order)
		return false, nil
	case blockSimple:
		return true, s.simple(body, p)
	default:
		return true, s.enhanced(body, p)
	}
}

// bodyLen returns the length of a block's body, which is between the two copies of the block's
// total length.
func bodyLen(total uint32) (int, error) {
	if total < blockFrameLen || total%4 != 0 || total > 1<<31-1 {
		return 0, fmt.Errorf("%w: a block length of %d bytes", ErrCorrupt, total)
	}
	return int(total) - blockFrameLen, nil
}

// body reads the n bytes of a block's body and checks the copy of the length behind it.
func (s *sections) body(n int) ([]byte, error) {
	if n > maxBlock {
		return nil, fmt.Errorf("%w: a block of %d bytes, the limit is %d", ErrCorrupt, n, maxBlock)
	}
	b, err := s.read(n + 4)
	if err != nil {
		return nil, err
	}
	if got := s.order.Uint32(b[n:]); got != uint32(n+blockFrameLen) {
		return nil, fmt.Errorf("%w: the block length is %d at its start and %d at its end", ErrCorrupt, n+blockFrameLen, got)
	}
	return b[:n], nil
}

// section reads the rest of a section header. Its byte-order magic follows the length field, so
// section gets the bytes of the length and decodes them when it knows the byte order.
func (s *sections) section(length [4]byte) error {
	magic, err := s.r.Peek(4)
	if err != nil {
		return ErrTruncated
	}
	switch magicSection {
	case binary.LittleEndian.Uint32(magic):
		s.order = binary.LittleEndian
	case binary.BigEndian.Uint32(magic):
		s.order = binary.BigEndian
	default:
		return fmt.Errorf("%w: the byte-order mark is % x", ErrCorrupt, magic)
	}
	n, err := bodyLen(s.order.Uint32(length[:]))
	if err != nil {
		return err
	}
	b, err := s.body(n)
	if err != nil {
		return err
	}
	if len(b) < sectionLen {
		return fmt.Errorf("%w: a section header of %d bytes", ErrCorrupt, len(b))
	}
	if major := s.order.Uint16(b[4:]); major != 1 {
		return fmt.Errorf("%w: pcapng version %d, and only 1 is known", ErrCorrupt, major)
	}
	s.interfaces, s.counted = s.interfaces[:0], nil
	return nil
}

// simple reads a simple packet block: a packet of the first interface without time and options.
func (s *sections) simple(b []byte, p *Packet) error {
	if len(b) < simpleLen || len(s.interfaces) == 0 {
		return fmt.Errorf("%w: a simple packet block of %d bytes in a section with %d interfaces", ErrCorrupt, len(b), len(s.interfaces))
	}
	f := &s.interfaces[0]
	p.Name, p.LinkType = f.name, f.linkType
	original := s.order.Uint32(b)
	n := min(uint32(len(b)-simpleLen), original) // the data without the pad behind them
	if f.snapLen > 0 {
		n = min(n, f.snapLen)
	}
	if n > MaxPacket {
		return tooLong(n)
	}
	p.OrigLen = int(original)
	p.Data = b[simpleLen : simpleLen+n]
	return nil
}

// enhanced reads an enhanced packet block: a packet with options.
func (s *sections) enhanced(b []byte, p *Packet) error {
	if len(b) < enhancedLen {
		return fmt.Errorf("%w: an enhanced packet block of %d bytes", ErrCorrupt, len(b))
	}
	id := s.order.Uint32(b)
	if int64(id) >= int64(len(s.interfaces)) {
		return fmt.Errorf("%w: a packet of interface %d, and there are %d", ErrCorrupt, id, len(s.interfaces))
	}
	ticks := uint64(s.order.Uint32(b[4:]))<<32 | uint64(s.order.Uint32(b[8:]))
	n := s.order.Uint32(b[12:])
	if int64(n) > int64(len(b)-enhancedLen) {
		return fmt.Errorf("%w: %d captured bytes in a block of %d", ErrCorrupt, n, len(b))
	}
	if n > MaxPacket {
		return tooLong(n)
	}
	f := &s.interfaces[id]
	p.Interface, p.Name, p.LinkType = int(id), f.name, f.linkType
	p.Time = f.nanos(ticks)
	p.OrigLen = int(s.order.Uint32(b[16:]))
	p.Data = b[enhancedLen : enhancedLen+n]
	rest := b[min(enhancedLen+pad4(int(n)), len(b)):]
	return options(rest, s.order, func(code uint16, value []byte) {
		if code == optComment {
			p.Comments = append(p.Comments, string(value))
		}
	})
}

// options calls f for every option in b up to the end mark. The value is valid during the call.
func options(b []byte, order binary.ByteOrder, f func(code uint16, value []byte)) error {
	for len(b) >= optHeaderLen {
		code, n := order.Uint16(b), int(order.Uint16(b[2:]))
		if code == optEnd {
			return nil
		}
		b = b[optHeaderLen:]
		if n > len(b) {
			return fmt.Errorf("%w: option %d has %d bytes, and %d are left in its block", ErrCorrupt, code, n, len(b))
		}
		f(code, b[:n])
		b = b[min(pad4(n), len(b)):]
	}
	return nil
}
