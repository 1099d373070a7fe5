package layout

import (
	"encoding/binary"
	"slices"
)

// The fields of a published page, little-endian, with their lengths in bytes: 8 bytes unused (in a
// checksummed page the first 4 are the checksum of the rest of the page without its last 8 bytes, as
// in an option of the authors' code), front version 1, leftmost child 8, sibling 8, level 1, index of the last record
// 2, lowest key 8, highest key 8. The records begin at byte 44. The rear version, 1 byte, follows
// the last possible record. A record of a published leaf: front version 1, key 8, value, rear
// version 1, with 4 significant bits in each version. A record of an internal page or of a
// checksummed page: key 8, child or value. The last 8 bytes of a checksummed page are its lock
// word, if the tree has PageLocks.
const (
	publishedHeader = 44
	recordVersion   = 15
)

func (p *Page) rear() int {
	return publishedHeader + p.Slots()*p.Shape.RecordLen(p.Level)
}

func (p *Page) parsePublished() error {
	b, le := p.Bytes, binary.LittleEndian
	p.Header = Header{
		Epoch: uint16(b[8]), Leftmost: Addr(le.Uint64(b[9:])), Sibling: Addr(le.Uint64(b[17:])), Level: int(b[25]),
		Last: int(int16(le.Uint16(b[26:]))), Lowest: le.Uint64(b[28:]), Highest: le.Uint64(b[36:]),
	}
	if p.Last < -1 || p.Last >= p.Slots() {
		return ErrTorn
	}
	if b[8] != b[p.rear()] {
		return ErrTorn
	}
	if b[8] == 0 {
		return ErrPage // the page was never written
	}
	if p.Shape.Kind == Checksummed && le.Uint32(b) != sum(p.Bytes) {
		return ErrTorn
	}
	return nil
}

func (p *Page) putPublished() Range {
	b, le := p.Bytes, binary.LittleEndian
	clear(b[:8])
	le.PutUint64(b[9:], uint64(p.Leftmost))
	le.PutUint64(b[17:], uint64(p.Sibling))
	b[25] = byte(p.Level)
	le.PutUint16(b[26:], uint16(int16(p.Last)))
	le.PutUint64(b[28:], p.Lowest)
	le.PutUint64(b[36:], p.Highest)
	b[8], b[p.rear()] = byte(p.Epoch), byte(p.Epoch)
	if p.Shape.Kind == Checksummed {
		le.PutUint32(b, sum(p.Bytes))
		return Range{0, len(b) - LockLen} // all but the lock word
	}
	return Range{0, len(b)}
}

// rewritten gives the page its next version, from 1 to 255, and returns the range of the whole
// page.
func (p *Page) rewritten() Range {
	p.Epoch = p.Epoch%255 + 1
	return p.putPublished()
}

func (p *Page) publishedSlot(i int) (Record, State) {
	at, n := p.Shape.slotAt(p.Level, i), p.Shape.RecordLen(p.Level)
	b := p.Bytes[at : at+n]
	if p.Shape.sorted(p.Level) {
		if i > p.Last {
			return Record{}, Free
		}
		return Record{Key: binary.LittleEndian.Uint64(b), Value: b[8:]}, Used
	}
	r := Record{Key: binary.LittleEndian.Uint64(b[1:]), Value: b[9 : n-1]}
	switch {
	case (b[0]^b[n-1])&recordVersion != 0:
		return r, Torn
	case zero(r.Value):
		return r, Free
	}
	return r, Used
}

func zero(b []byte) bool { return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) }

func (p *Page) putPublishedRecord(i int, key uint64, value []byte) Range {
	at, n := p.Shape.slotAt(p.Level, i), p.Shape.RecordLen(p.Level)
	b := p.Bytes[at : at+n]
	v := (b[0] + 1) & recordVersion
	b[0], b[n-1] = v, v
	binary.LittleEndian.PutUint64(b[1:], key)
	clear(b[9+copy(b[9:n-1], value) : n-1])
	return Range{at, n}
}

// dropPublished removes the records in slots, the upper half of the page.
func (p *Page) dropPublished(slots []uint16) {
	if p.Shape.sorted(p.Level) {
		p.Last -= len(slots)
		return
	}
	for _, i := range slots {
		p.putPublishedRecord(int(i), 0, nil)
	}
}
