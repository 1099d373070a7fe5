package wire

import "encoding/binary"

//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------------------------------------------------------+
//	|                  remote key to be invalidated                 |
//	+---------------------------------------------------------------+

const iethLen = 4

// IETH is the R_Key in a SEND with invalidate. The responder invalidates this key (IBTA 9.3).
type IETH uint32

func (h *IETH) Parse(b []byte) error {
	if err := need(b, iethLen, "IETH"); err != nil {
		return err
	}
	*h = IETH(binary.BigEndian.Uint32(b))
	return nil
}

func (h IETH) AppendTo(b []byte) []byte { return binary.BigEndian.AppendUint32(b, uint32(h)) }
