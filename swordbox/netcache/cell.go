package netcache

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// A cell has, with big-endian numbers: the lower bits of the number of the probe 4 bytes | length of the answer 2 | zero 2 | the answer
// to the probe behind its head, which is what a GET gets.
const cellHead = 8

// appendCell appends the bytes of a cell that are written.
func appendCell(b []byte, fill uint32, body []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, fill)
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(body))), 0, 0)
	return append(b, body...)
}

// holds returns the answer in a cell that was read, if it is the value of a place: of its last probe, with its
// digest, and of this key, because keys may have the same hash.
func (p *place) holds(b, key []byte) (body []byte, ok bool) {
	if len(b) != cellHead+int(p.length) || binary.BigEndian.Uint32(b) != uint32(p.fill) || binary.BigEndian.Uint16(b[4:]) != p.length {
		return nil, false
	}
	var a answer
	a.parse(b[cellHead:])
	return a.body, a.whole && a.digest == p.digest && bytes.Equal(a.key, key)
}

func errTooShort(cell, mtu int) error {
	return fmt.Errorf("a cell of %d bytes is longer than the path MTU of %d bytes", cell, mtu)
}
