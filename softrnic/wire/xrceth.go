package wire

import "encoding/binary"

//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------+-----------------------------------------------+
//	|   reserved    |               destination SRQ                 |
//	+---------------+-----------------------------------------------+

const xrcETHLen = 4

// MaxSRQN is the highest number of a shared receive queue that fits into an XRCETH.
const MaxSRQN = mask24

// XRCETH is the header behind the BTH of every request of extended reliable connections (XRC). It names
// the shared receive queue for the request (annex A14).
type XRCETH struct {
	Reserved uint8
	SRQN     uint32 // 24 bits
}

func (h *XRCETH) Parse(b []byte) error {
	if err := need(b, xrcETHLen, "XRCETH"); err != nil {
		return err
	}
	word := binary.BigEndian.Uint32(b)
	h.Reserved, h.SRQN = uint8(word>>24), word&mask24
	return nil
}

func (h *XRCETH) AppendTo(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(h.Reserved)<<24|h.SRQN&mask24)
}
