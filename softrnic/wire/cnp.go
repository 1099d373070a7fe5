package wire

//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------------------------------------------------------+
//	|                          reserved                             |
//	+                        (16 bytes, 0)                          +
//	|                                                               |
//	+---------------------------------------------------------------+

const cnpLen = 16

// CNPReserved is the field after the BTH of a congestion notification packet (A17.9.3): reserved,
// sent as 0, ignored on receipt, and covered by the ICRC.
type CNPReserved [cnpLen]byte

func (h *CNPReserved) Parse(b []byte) error {
	if err := need(b, cnpLen, "CNP"); err != nil {
		return err
	}
	*h = CNPReserved(b[:cnpLen])
	return nil
}

func (h *CNPReserved) AppendTo(b []byte) []byte { return append(b, h[:]...) }
