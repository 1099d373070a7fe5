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
//	|                    swap or add (63..32)                       |
//	+---------------------------------------------------------------+
//	|                    swap or add (31..0)                        |
//	+---------------------------------------------------------------+
//	|                      compare (63..32)                         |
//	+---------------------------------------------------------------+
//	|                      compare (31..0)                          |
//	+---------------------------------------------------------------+

const atomicETHLen = 28

// AtomicETH is the header of CMP_SWAP and FETCH_ADD requests (IBTA 9.3). The operands are numbers
// in big-endian byte order; the responder applies them to a word that its memory has in host byte
// order.
type AtomicETH struct {
	VA        uint64
	RKey      uint32
	SwapOrAdd uint64
	Compare   uint64
}

func (h *AtomicETH) Parse(b []byte) error {
	if err := need(b, atomicETHLen, "AtomicETH"); err != nil {
		return err
	}
	h.VA = binary.BigEndian.Uint64(b)
	h.RKey = binary.BigEndian.Uint32(b[8:])
	h.SwapOrAdd = binary.BigEndian.Uint64(b[12:])
	h.Compare = binary.BigEndian.Uint64(b[20:])
	return nil
}

func (h *AtomicETH) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.VA)
	b = binary.BigEndian.AppendUint32(b, h.RKey)
	b = binary.BigEndian.AppendUint64(b, h.SwapOrAdd)
	return binary.BigEndian.AppendUint64(b, h.Compare)
}
