package wire

import "encoding/binary"

//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------------------------------------------------------+
//	|                        immediate data                         |
//	+---------------------------------------------------------------+

const immDtLen = 4

// ImmDt is the immediate data of a SEND or WRITE (IBTA 9.3), as a number. On the wire its bytes are
// in big-endian order.
type ImmDt uint32

func (h *ImmDt) Parse(b []byte) error {
	if err := need(b, immDtLen, "ImmDt"); err != nil {
		return err
	}
	*h = ImmDt(binary.BigEndian.Uint32(b))
	return nil
}

func (h ImmDt) AppendTo(b []byte) []byte { return binary.BigEndian.AppendUint32(b, uint32(h)) }
