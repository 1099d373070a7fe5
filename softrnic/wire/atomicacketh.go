package wire

import "encoding/binary"

//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------------------------------------------------------+
//	|                 original remote data (63..32)                 |
//	+---------------------------------------------------------------+
//	|                 original remote data (31..0)                  |
//	+---------------------------------------------------------------+

const atomicAckETHLen = 8

// AtomicAckETH is the original value of the word, in the response to an atomic (IBTA 9.3). It is a
// number in big-endian byte order, as the operands of AtomicETH are.
type AtomicAckETH uint64

func (h *AtomicAckETH) Parse(b []byte) error {
	if err := need(b, atomicAckETHLen, "AtomicAckETH"); err != nil {
		return err
	}
	*h = AtomicAckETH(binary.BigEndian.Uint64(b))
	return nil
}

func (h AtomicAckETH) AppendTo(b []byte) []byte { return binary.BigEndian.AppendUint64(b, uint64(h)) }
