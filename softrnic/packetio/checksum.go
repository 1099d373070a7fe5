package packetio

import "encoding/binary"

// Internet checksums (RFC 1071): ones' complement sums of 16-bit words.

// Sum adds 16-bit words; an odd last byte counts as the high byte.
func Sum(b []byte) (s uint64) {
	for ; len(b) >= 2; b = b[2:] {
		s += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	return s
}

// Fold reduces a ones' complement sum to 16 bits.
func Fold(s uint64) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// SumGrows returns by how much a ones' complement sum grows if the bytes old are replaced by the bytes now.
// Both have the same even length.
func SumGrows(old, now []byte) (delta uint64) {
	for i := 0; i < len(old); i += 2 {
		delta += uint64(^binary.BigEndian.Uint16(old[i:])) + uint64(binary.BigEndian.Uint16(now[i:]))
	}
	return delta
}

// FixSum adds delta to the sum whose complement is in the first two bytes of b (RFC 1624).
func FixSum(b []byte, delta uint64) {
	binary.BigEndian.PutUint16(b, ^Fold(uint64(^binary.BigEndian.Uint16(b))+delta))
}

// FixUDPSum is FixSum for the checksum of UDP. A packet may have none: then the field is 0 and stays 0. So a
// checksum that becomes 0 is written as 0xffff.
func FixUDPSum(b []byte, delta uint64) {
	if binary.BigEndian.Uint16(b) == 0 {
		return
	}
	FixSum(b, delta)
	if binary.BigEndian.Uint16(b) == 0 {
		binary.BigEndian.PutUint16(b, 0xffff)
	}
}
