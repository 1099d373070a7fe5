package layout

import (
	"encoding/binary"
	"hash/crc32"
)

// The first line (64 bytes) of a hardened page is its header. The table gives offset, name and
// length in bytes; numbers are little-endian:
//
//	 0 checksum of what follows, 4    32 leftmost child, 8
//	                                    of a leaf: cut
//	 4 level, 1                       40 own address, 8
//	 5 stage, 1                       48 generation of the tree, 8
//	 6 epoch, 2: 10 bits; opened: bit 14; refuses: bit 15
//	 8 lowest key, 8                  56 reach, 8
//	16 highest key, 8
//	24 sibling, 8
//
// Records fill the other lines of the page. No record crosses the end of a line. A record:
//
//	0 key, 8
//	8 value, of the length that the shape says
//	  mark, 2: 6 bits for the length + 1 (0: never written, 63: removed), 10 bits for the epoch
const (
	hardenedOverhead = 8 + 2
	lenMask          = 1<<6 - 1
	removed          = lenMask
	openedBit        = 1 << 14
	refusesBit       = 1 << 15
	epochMask        = 1<<10 - 1
	// oldest is the greatest age of a record, in splits of its page. Epochs have 10 bits and wrap
	// around. So if the epochs of the record and of the page's header differ by more than oldest,
	// the record is younger than the header.
	oldest = epochMask / 2
	// refreshAge is the age from which a split updates the epoch of a record. One split updates at
	// most refreshMost records. A page has so few records that every record is updated before its
	// age reaches oldest.
	refreshAge  = 256
	refreshMost = 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (p *Page) parseHardened() error {
	b := p.Bytes[:Line]
	le := binary.LittleEndian
	if le.Uint32(b) != crc32.Checksum(b[4:], castagnoli) {
		return ErrPage
	}
	p.Header = Header{
		Stage: Stage(b[5]), Level: int(b[4]), Epoch: le.Uint16(b[6:]) & epochMask, Lowest: le.Uint64(b[8:]), Highest: le.Uint64(b[16:]),
		Sibling: Addr(le.Uint64(b[24:])), Leftmost: Addr(le.Uint64(b[32:])), Self: Addr(le.Uint64(b[40:])),
		Generation: le.Uint64(b[48:]), Reach: le.Uint64(b[56:]), Last: -1,
		Opened: le.Uint16(b[6:])&openedBit != 0, Refuses: le.Uint16(b[6:])&refusesBit != 0,
	}
	if p.Level == 0 {
		p.Leftmost, p.Cut = 0, le.Uint64(b[32:])
	}
	switch {
	case p.Stage > Unused:
		return ErrPage
	case p.Stage == Unused:
		return nil // an unused page has no valid records
	}
	at := p.Shape.ValueLen(p.Level) + 8
	for i := range p.Slots() {
		mark := le.Uint16(p.Bytes[p.Shape.slotAt(p.Level, i)+at:])
		if mark != 0 && age(p.Epoch, mark>>6) > oldest {
			return ErrTorn
		}
	}
	return nil
}

// age returns how many splits older a record is than a header. A result above oldest means that the
// record is younger than the header.
func age(header, record uint16) uint16 { return (header - record) & epochMask }

func (p *Page) putHardened() Range {
	b := p.Bytes[:Line]
	le := binary.LittleEndian
	b[4], b[5] = byte(p.Level), byte(p.Stage)
	word := p.Epoch
	if p.Opened {
		word |= openedBit
	}
	if p.Refuses {
		word |= refusesBit
	}
	le.PutUint16(b[6:], word)
	le.PutUint64(b[8:], p.Lowest)
	le.PutUint64(b[16:], p.Highest)
	le.PutUint64(b[24:], uint64(p.Sibling))
	le.PutUint64(b[32:], uint64(p.Leftmost)|p.Cut)
	le.PutUint64(b[40:], uint64(p.Self))
	le.PutUint64(b[48:], p.Generation)
	le.PutUint64(b[56:], p.Reach)
	le.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	return Range{0, Line}
}

// hardenedRecord returns the bytes of slot i, and its mark.
func (p *Page) hardenedRecord(i int) (b []byte, mark uint16) {
	at, n := p.Shape.slotAt(p.Level, i), p.Shape.RecordLen(p.Level)
	b = p.Bytes[at : at+n]
	return b, binary.LittleEndian.Uint16(b[n-2:])
}

func (p *Page) hardenedSlot(i int) (Record, State) {
	b, mark := p.hardenedRecord(i)
	n := int(mark&lenMask) - 1
	// The length of a removed record, 63, is greater than that of any value.
	if n < 0 || n > len(b)-hardenedOverhead {
		return Record{}, Free
	}
	r := Record{Key: binary.LittleEndian.Uint64(b), Value: b[8 : 8+n]}
	if !p.Covers(r.Key) || p.Level > 0 && n != addrLen {
		return Record{}, Free
	}
	return r, Used
}

func (p *Page) putHardenedRecord(i int, key uint64, value []byte) Range {
	b, _ := p.hardenedRecord(i)
	binary.LittleEndian.PutUint64(b, key)
	n := copy(b[8:len(b)-2], value)
	clear(b[8+n : len(b)-2])
	binary.LittleEndian.PutUint16(b[len(b)-2:], p.Epoch<<6|uint16(n+1))
	return Range{p.Shape.slotAt(p.Level, i), len(b)}
}

func (p *Page) removeHardened(i int) Range {
	b, _ := p.hardenedRecord(i)
	clear(b)
	binary.LittleEndian.PutUint16(b[len(b)-2:], p.Epoch<<6|removed)
	return Range{p.Shape.slotAt(p.Level, i), len(b)}
}
