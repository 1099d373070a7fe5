package layout

import (
	"encoding/binary"
	"hash/crc32"
)

// sum returns the checksum of a checksummed page. It leaves out the lock word, which changes
// without the rest of the page.
func sum(b []byte) uint32 { return crc32.Checksum(b[4:len(b)-LockLen], castagnoli) }

// insertSorted inserts a record in the order of the keys, and moves the records after it.
func (p *Page) insertSorted(key uint64, value []byte) Range {
	i := p.Last + 1
	for ; i > 0; i-- {
		if before, _ := p.publishedSlot(i - 1); before.Key < key {
			break
		}
	}
	at, end := p.Shape.slotAt(p.Level, i), p.Shape.slotAt(p.Level, p.Last+1)
	copy(p.Bytes[at+p.Shape.RecordLen(p.Level):], p.Bytes[at:end])
	p.Last++
	return p.replaceSorted(i, key, value)
}

// replaceSorted writes a record into a used slot. The key must fit into the order of the keys.
func (p *Page) replaceSorted(i int, key uint64, value []byte) Range {
	at := p.Shape.slotAt(p.Level, i)
	b := p.Bytes[at : at+p.Shape.RecordLen(p.Level)]
	binary.LittleEndian.PutUint64(b, key)
	clear(b[8+copy(b[8:], value):])
	return p.rewritten()
}

// removeSorted removes the record in slot i, and moves the records after it.
func (p *Page) removeSorted(i int) Range {
	at, end := p.Shape.slotAt(p.Level, i), p.Shape.slotAt(p.Level, p.Last+1)
	copy(p.Bytes[at:], p.Bytes[at+p.Shape.RecordLen(p.Level):end])
	p.Last--
	return p.rewritten()
}
