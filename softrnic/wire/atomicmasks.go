package wire

import "encoding/binary"

//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------------------------------------------------------+
//	|                     swap mask (63..32)                        |
//	+---------------------------------------------------------------+
//	|                     swap mask (31..0)                         |
//	+---------------------------------------------------------------+
//	|               compare mask or boundary (63..32)               |
//	+---------------------------------------------------------------+
//	|               compare mask or boundary (31..0)                |
//	+---------------------------------------------------------------+

const atomicMasksLen = 16

// AtomicMasks is the header behind the AtomicETH of a masked atomic. It is not in the
// specification: manufacturers document that further operands follow the AtomicETH, but not their
// format. So the format here is the project's own. Like the operands, each mask is a number of 64
// bits in big-endian byte order.
type AtomicMasks struct {
	// Swap has the bits that a CMP_SWAP replaces; 0 in a FETCH_ADD.
	Swap uint64
	// CompareOrBoundary has the bits that a CMP_SWAP compares, or the highest bit of each field of
	// a FETCH_ADD.
	CompareOrBoundary uint64
}

func (h *AtomicMasks) Parse(b []byte) error {
	if err := need(b, atomicMasksLen, "AtomicMasks"); err != nil {
		return err
	}
	h.Swap = binary.BigEndian.Uint64(b)
	h.CompareOrBoundary = binary.BigEndian.Uint64(b[8:])
	return nil
}

func (h *AtomicMasks) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.Swap)
	return binary.BigEndian.AppendUint64(b, h.CompareOrBoundary)
}
