package wire

import "encoding/binary"

//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------------------------------------------+---+-------+
//	|                     reserved                      |SEL|  PLT  |
//	+---------------------------------------------------+---+-------+

const fethLen = 4

// Selectivity levels of a FLUSH. The others are reserved.
const (
	FlushRange  uint8 = 0 // the bytes that the RETH names
	FlushRegion uint8 = 1 // the whole region of the R_Key; address and length of the RETH are ignored
)

// Placement types of a FLUSH, as bits. The others are reserved.
const (
	FlushGlobal     uint8 = 1 << 0 // the bytes become visible to all readers of the memory
	FlushPersistent uint8 = 1 << 1 // the bytes become persistent
)

// FETH is the flush extended transport header, in front of the RETH of a FLUSH (memory placement
// extensions).
type FETH struct {
	Reserved  uint32 // 26 bits
	Level     uint8  // selectivity level, 2 bits
	Placement uint8  // placement types, 4 bits
}

func (h *FETH) Parse(b []byte) error {
	if err := need(b, fethLen, "FETH"); err != nil {
		return err
	}
	v := binary.BigEndian.Uint32(b)
	h.Reserved, h.Level, h.Placement = v>>6, uint8(v>>4&3), uint8(v&0xf)
	return nil
}

func (h *FETH) AppendTo(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, h.Reserved<<6|uint32(h.Level&3)<<4|uint32(h.Placement&0xf))
}
