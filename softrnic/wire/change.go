package wire

import (
	"encoding/binary"
	"hash/crc32"
	"unsafe"
)

// When a packet is forwarded with other headers and the same payload, its ICRC can be computed
// without reading the payload again. The CRC register at the end of a packet is the exclusive or of
// two parts. The first part is the register after the headers, advanced over as many zero bytes as
// the payload is long. The second part depends only on the payload. So the old and the new ICRC
// differ by the exclusive or of the two registers after the old and the new headers, advanced over
// the length of the payload. The time to advance a register grows with the logarithm of the length.

// changeMin is the length of payload and pad, in bytes, from which AppendChanged is faster than a
// CRC of the whole packet.
const changeMin = 512

// icrcShifts[k] advances the CRC register over 4<<k bytes of zero: the result is the exclusive or
// of one entry for each group of four bits of the register.
var icrcShifts = func() (t [icrcShiftBits][8][16]uint32) {
	for k := range t {
		for i := range t[k] {
			for v := range t[k][i] {
				crc := uint32(v) << (4 * i)
				if k == 0 {
					t[k][i][v] = icrcRest(crc, make([]byte, 4))
				} else {
					half := &t[k-1]
					t[k][i][v] = icrcShiftBy(half, icrcShiftBy(half, crc))
				}
			}
		}
	}
	return t
}()

// icrcShiftBits is the number of tables in icrcShifts. Together they advance the register over any
// number of bytes that is a multiple of 4 and less than 4<<14 = 65536. No IP datagram needs more.
const icrcShiftBits = 14

// icrcShiftBy advances the CRC register over 4<<k bytes of zero, where t is icrcShifts[k].
func icrcShiftBy(t *[8][16]uint32, crc uint32) uint32 {
	return t[0][crc&15] ^ t[1][crc>>4&15] ^ t[2][crc>>8&15] ^ t[3][crc>>12&15] ^
		t[4][crc>>16&15] ^ t[5][crc>>20&15] ^ t[6][crc>>24&15] ^ t[7][crc>>28]
}

// icrcShift advances the CRC register over n bytes of zero; n is a multiple of 4 and below
// 4<<icrcShiftBits.
func icrcShift(crc uint32, n int) uint32 {
	for k := 0; n >= 4; k, n = k+1, n>>1 {
		if n&4 != 0 {
			crc = icrcShiftBy(&icrcShifts[k], crc)
		}
	}
	return crc
}

// AppendChanged appends the same bytes as AppendFrame, but is faster if the payload is long and
// unchanged. f is a received packet with changed headers; old is the packet as received, whose ICRC
// the caller has checked. If f has the payload of old, in the same memory, AppendChanged copies the
// payload without computing its CRC. Then the ICRC of the result is right if and only if the ICRC
// of old is right.
func (s *Sealer) AppendChanged(b []byte, f *Frame, old []byte) []byte {
	n := len(f.Payload) + padOf(len(f.Payload))
	if n < changeMin {
		return s.AppendFrame(b, f)
	}
	was, sum, wasV6, same := f.unchanged(old)
	if !same {
		return s.AppendFrame(b, f)
	}
	start := len(b)
	b = f.appendOpen(b, &f.Packet)
	covered := b[start+f.Eth.Len():]
	crc := s.difference(was[:len(was)-n], wasV6, covered[:len(covered)-n], f.V6)
	return binary.LittleEndian.AppendUint32(b, binary.LittleEndian.Uint32(sum)^icrcShift(crc, n))
}

// unchanged reports in `same` whether f has the payload of packet `old`, in the same memory and
// with a pad of zeros. If so, it also returns the bytes of old that the ICRC covers, the ICRC, and
// whether old is an IPv6 packet.
func (f *Frame) unchanged(old []byte) (covered, sum []byte, v6, same bool) {
	payload := f.payload(f.BTH.Opcode.Info())
	pad := padOf(len(payload))
	if len(payload) == 0 {
		return nil, nil, false, false
	}
	covered, sum, v6, ok := icrcSpan(old)
	if !ok || len(covered) < len(payload)+pad {
		return nil, nil, false, false
	}
	at := len(covered) - len(payload) - pad
	if headersOf(covered, v6) != at || unsafe.SliceData(covered[at:]) != unsafe.SliceData(payload) {
		return nil, nil, false, false
	}
	for _, x := range covered[len(covered)-pad:] {
		if x != 0 { // AppendTo writes zeros
			return nil, nil, false, false
		}
	}
	return covered, sum, v6, true
}

// headersOf returns the length of packet b's headers: the IP header, with which b begins, the UDP
// header, the BTH and the extended headers of its opcode.
func headersOf(b []byte, v6 bool) int {
	n := ipv4Len + udpLen
	if v6 {
		n = ipv6Len + udpLen
	}
	return n + Opcode(b[n]).Info().HeaderLen
}

// difference returns the exclusive or of the CRC registers after two lists of headers, a and b.
// Each list begins with the IP header. Both are xor-ed into the Sealer's memory so that they end at
// the same place; zeros in front of them do not change a register that is 0.
func (s *Sealer) difference(a []byte, aV6 bool, b []byte, bV6 bool) uint32 {
	total := max(sealMin, (max(len(a), len(b))+leadLen+sealUnit-1)&^(sealUnit-1))
	clear(s.buf[:total])
	s.add(total, a, aV6)
	s.add(total, b, bV6)
	return ^crc32.Update(^uint32(0), crc32.IEEETable, s.buf[:total])
}

// add xors the headers b, and the lead (see leadLen) in front of them, into the Sealer's memory, so
// that the headers end at offset `total`.
func (s *Sealer) add(total int, b []byte, v6 bool) {
	at := total - len(b)
	lead := s.buf[at-leadLen:]
	binary.LittleEndian.PutUint32(lead, binary.LittleEndian.Uint32(lead)^sealLead)
	masks := icrcMaskIPv4[:]
	if v6 {
		masks = icrcMaskIPv6[:]
	}
	to := s.buf[at:total]
	for _, m := range masks {
		w := binary.LittleEndian.Uint64(to) ^ (binary.LittleEndian.Uint64(b) | m)
		binary.LittleEndian.PutUint64(to, w)
		to, b = to[8:], b[8:]
	}
	for ; len(b) >= 4; to, b = to[4:], b[4:] {
		binary.LittleEndian.PutUint32(to, binary.LittleEndian.Uint32(to)^binary.LittleEndian.Uint32(b))
	}
}
