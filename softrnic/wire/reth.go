package wire

import "encoding/binary"

//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------------------------------------------------------+
//	|                   virtual address (63..32)                    |
//	+---------------------------------------------------------------+
//	|                    virtual address (31..0)                    |
//	+---------------------------------------------------------------+
//	|                          remote key                           |
//	+---------------------------------------------------------------+
//	|                          DMA length                           |
//	+---------------------------------------------------------------+

const rethLen = 16

// RETH is the RDMA extended transport header of READ requests, of the first packet of a WRITE (IBTA
// 9.3), and of ATOMIC_WRITE and FLUSH.
type RETH struct {
	VA     uint64
	RKey   uint32
	Length uint32 // bytes of the whole message
}

func (h *RETH) Parse(b []byte) error {
	if err := need(b, rethLen, "RETH"); err != nil {
		return err
	}
	h.VA = binary.BigEndian.Uint64(b)
	h.RKey = binary.BigEndian.Uint32(b[8:])
	h.Length = binary.BigEndian.Uint32(b[12:])
	return nil
}

func (h *RETH) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.VA)
	b = binary.BigEndian.AppendUint32(b, h.RKey)
	return binary.BigEndian.AppendUint32(b, h.Length)
}
