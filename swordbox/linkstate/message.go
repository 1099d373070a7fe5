package linkstate

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Format of a message.
const (
	// etherType is IEEE's second type for local experiments.
	etherType  = 0x88b6
	magic      = 'L'
	version    = 1
	headerLen  = 18
	recordHead = 9 // switch and number
	macHead    = 14
)

// address is the destination of messages: that of the nearest bridge, which no bridge forwards (IEEE
// 802.1Q, table 8-1).
var address = wire.MAC{0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e}

// IsMessage reports whether a frame is a message of this package, by its addresses and type alone.
func IsMessage(frame []byte) bool {
	return len(frame) >= macHead && wire.MAC(frame[:6]) == address && binary.BigEndian.Uint16(frame[12:]) == etherType
}

// said is a record in a message.
type said struct {
	of int
	record
}

func (m *Machine) bitBytes() int { return (len(m.topology.Trunks) + 7) / 8 }

// Append appends the switch's message, with source address src, to b.
func (m *Machine) Append(b []byte, src wire.MAC) []byte {
	b = append(b, address[:]...)
	b = append(b, src[:]...)
	b = binary.BigEndian.AppendUint16(b, etherType)
	b = append(b, magic, version, byte(m.self), 0)
	count := len(b) - 1
	for i := range m.records {
		r := &m.records[i]
		if r.number == 0 {
			continue
		}
		b = append(b, byte(i))
		b = binary.BigEndian.AppendUint64(b, r.number)
		b = append(b, r.works[:m.bitBytes()]...)
		b[count]++
	}
	return b
}

// parse reads a message; false if it is none of a switch of this topology. Bytes behind the records are
// padding of the link.
func (m *Machine) parse(b []byte) (from int, list []said, ok bool) {
	if !IsMessage(b) || len(b) < headerLen || b[14] != magic || b[15] != version || int(b[16]) >= m.topology.Switches {
		return 0, nil, false
	}
	size := recordHead + m.bitBytes()
	n := int(b[17])
	if n > m.topology.Switches || len(b) < headerLen+n*size {
		return 0, nil, false
	}
	for i := range n {
		r := b[headerLen+i*size:]
		s := said{of: int(r[0]), record: record{number: binary.BigEndian.Uint64(r[1:])}}
		if s.of >= m.topology.Switches || s.number == 0 || s.number == 1<<64-1 {
			return 0, nil, false
		}
		copy(s.works[:], r[recordHead:size])
		m.clean(&s)
		list = append(list, s)
	}
	return int(b[16]), list, true
}

// clean removes the bits of trunks that are not the switch's own.
func (m *Machine) clean(s *said) {
	for i := range s.works {
		if i >= m.bitBytes() {
			s.works[i] = 0
		}
	}
	for i := range 8 * m.bitBytes() {
		if i >= len(m.topology.Trunks) {
			s.works.set(i, false)
			continue
		}
		if _, own := m.topology.Trunks[i].other(s.of); !own {
			s.works.set(i, false)
		}
	}
}
