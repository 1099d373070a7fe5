package wire

import "encoding/binary"

//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------------------------------------------------------+
//	|                           queue key                           |
//	+---------------+-----------------------------------------------+
//	|   reserved    |                   source QP                   |
//	+---------------+-----------------------------------------------+

const dethLen = 8

// DETH is the header of datagrams (IBTA 9.3).
type DETH struct {
	QKey     uint32
	Reserved uint8
	SrcQP    QPN
}

func (h *DETH) Parse(b []byte) error {
	if err := need(b, dethLen, "DETH"); err != nil {
		return err
	}
	h.QKey = binary.BigEndian.Uint32(b)
	h.Reserved = b[4]
	h.SrcQP = QPN(binary.BigEndian.Uint32(b[4:]) & mask24)
	return nil
}

func (h *DETH) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, h.QKey)
	return binary.BigEndian.AppendUint32(b, uint32(h.Reserved)<<24|uint32(h.SrcQP)&mask24)
}
