package layout

import (
	"encoding/binary"
	"hash/crc32"
)

// The header's line of a sound page, little-endian:
//
//	 0 checksum of what follows, 4    32 leftmost child, 8
//	 4 level, 1                       40 own address, 8
//	 5 zero, 1                        48 generation of the tree, 8
//	 6 epoch, 2                       56 zero, 8
//	 8 lowest key, 8
//	16 highest key, 8
//	24 sibling, 8
//
// Records fill the other lines, as many as fit into each:
//
//	0 key, 8
//	8 value, as long as the shape says
//	  mark, 2: 6 bits for the length + 1 (0: never written, 63: removed), 10 bits for the epoch
const (
	soundOverhead = 8 + 2
	lenMask       = 1<<6 - 1
	removed       = lenMask
	epochMask     = 1<<10 - 1
	// oldest is the greatest age of a record, in splits of its page; what seems older is younger than the header.
	oldest = epochMask / 2
	// refreshAge is at which age a split brings a record's epoch up to date, at most refreshMost of them: the records of a page are
	// so few that none comes near oldest.
	refreshAge  = 256
	refreshMost = 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (p *Page) parseSound() error {
	b := p.Bytes[:Line]
	le := binary.LittleEndian
	if le.Uint32(b) != crc32.Checksum(b[4:], castagnoli) {
		return ErrPage
	}
	p.Header = Header{
		Level: int(b[4]), Epoch: le.Uint16(b[6:]) & epochMask, Lowest: le.Uint64(b[8:]), Highest: le.Uint64(b[16:]),
		Sibling: Addr(le.Uint64(b[24:])), Leftmost: Addr(le.Uint64(b[32:])), Self: Addr(le.Uint64(b[40:])),
		Generation: le.Uint64(b[48:]), Last: -1,
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

// age is by how many splits a record is older than a header; more than oldest says that it is younger.
func age(header, record uint16) uint16 { return (header - record) & epochMask }

func (p *Page) putSound() Range {
	b := p.Bytes[:Line]
	le := binary.LittleEndian
	b[4], b[5] = byte(p.Level), 0
	le.PutUint16(b[6:], p.Epoch)
	le.PutUint64(b[8:], p.Lowest)
	le.PutUint64(b[16:], p.Highest)
	le.PutUint64(b[24:], uint64(p.Sibling))
	le.PutUint64(b[32:], uint64(p.Leftmost))
	le.PutUint64(b[40:], uint64(p.Self))
	le.PutUint64(b[48:], p.Generation)
	le.PutUint64(b[56:], 0)
	le.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	return Range{0, Line}
}

// soundRecord is the bytes of slot i, and its mark.
func (p *Page) soundRecord(i int) (b []byte, mark uint16) {
	at, n := p.Shape.slotAt(p.Level, i), p.Shape.RecordLen(p.Level)
	b = p.Bytes[at : at+n]
	return b, binary.LittleEndian.Uint16(b[n-2:])
}

func (p *Page) soundSlot(i int) (Record, State) {
	b, mark := p.soundRecord(i)
	n := int(mark&lenMask) - 1
	if n < 0 || n > len(b)-soundOverhead { // a mark of 63 is beyond every value
		return Record{}, Free
	}
	r := Record{Key: binary.LittleEndian.Uint64(b), Value: b[8 : 8+n]}
	if !p.Covers(r.Key) || p.Level > 0 && n != addrLen {
		return Record{}, Free
	}
	return r, Used
}

func (p *Page) putSoundRecord(i int, key uint64, value []byte) Range {
	b, _ := p.soundRecord(i)
	binary.LittleEndian.PutUint64(b, key)
	n := copy(b[8:len(b)-2], value)
	clear(b[8+n : len(b)-2])
	binary.LittleEndian.PutUint16(b[len(b)-2:], p.Epoch<<6|uint16(n+1))
	return Range{p.Shape.slotAt(p.Level, i), len(b)}
}

func (p *Page) removeSound(i int) Range {
	b, _ := p.soundRecord(i)
	clear(b)
	binary.LittleEndian.PutUint16(b[len(b)-2:], p.Epoch<<6|removed)
	return Range{p.Shape.slotAt(p.Level, i), len(b)}
}

// refresh brings the epochs of old records up to date before a split, one write each: a record's epoch alone changes.
func (p *Page) refresh(ranges []Range) []Range {
	n := len(ranges)
	for i := range p.Slots() {
		b, mark := p.soundRecord(i)
		if mark != 0 && age(p.Epoch, mark>>6) >= refreshAge && len(ranges)-n < refreshMost {
			binary.LittleEndian.PutUint16(b[len(b)-2:], p.Epoch<<6|mark&lenMask)
			ranges = append(ranges, Range{p.Shape.slotAt(p.Level, i) + len(b) - 2, 2})
		}
	}
	return ranges
}
