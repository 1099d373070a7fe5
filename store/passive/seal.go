package passive

import (
	"encoding/binary"
	"hash/crc32"
)

// SealLen returns how many bytes longer a value becomes when Seal puts this many words before it.
func SealLen(words int) int { return 8*words + 8 }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns the checksum of a sealed value. The value begins at b[n]; the four bytes before
// n are the place of the checksum and do not count.
func checksum(b []byte, n int) uint32 {
	return crc32.Update(crc32.Checksum(b[:n-4], castagnoli), castagnoli, b[n:])
}

// Seal appends to b: the words, the value's length, a checksum of all parts, and the value. A
// client may read a value while another one writes it. Unseal says whether the client has read a
// whole value.
func Seal(b, value []byte, words ...uint64) []byte {
	le, from, n := binary.LittleEndian, len(b), SealLen(len(words))
	for _, w := range words {
		b = le.AppendUint64(b, w)
	}
	b = le.AppendUint32(b, uint32(len(value)))
	b = append(le.AppendUint32(b, 0), value...)
	le.PutUint32(b[from+n-4:], checksum(b[from:], n))
	return b
}

// Unseal returns the sealed value at the beginning of b. ok is false if the words before the value
// are not `words`, or if the value is torn: it was being written during the read.
func Unseal(b []byte, words ...uint64) (value []byte, ok bool) {
	le, n := binary.LittleEndian, SealLen(len(words))
	if len(b) < n {
		return nil, false
	}
	for i, w := range words {
		if le.Uint64(b[8*i:]) != w {
			return nil, false
		}
	}
	end := uint64(n) + uint64(le.Uint32(b[n-8:]))
	if end > uint64(len(b)) || checksum(b[:end], n) != le.Uint32(b[n-4:]) {
		return nil, false
	}
	return b[n:end], true
}
