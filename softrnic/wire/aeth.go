package wire

import "encoding/binary"

//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------+-----------------------------------------------+
//	|   syndrome    |            message sequence number            |
//	+---------------+-----------------------------------------------+

const aethLen = 4

// AETH is the header of acknowledgements and of READ responses, except for MIDDLE (IBTA 9.3).
type AETH struct {
	Syndrome Syndrome
	MSN      uint32 // 24 bits
}

func (h *AETH) Parse(b []byte) error {
	if err := need(b, aethLen, "AETH"); err != nil {
		return err
	}
	h.Syndrome = Syndrome(b[0])
	h.MSN = binary.BigEndian.Uint32(b) & mask24
	return nil
}

func (h *AETH) AppendTo(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(h.Syndrome)<<24|h.MSN&mask24)
}
