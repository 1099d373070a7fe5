package wire

import (
	"encoding/binary"
	"hash/crc32"
)

// The invariant CRC (IBTA 7.8.1, A17.3.3) is the CRC-32 of Ethernet over all that no switch or
// router changes on the way. It begins with eight bytes of ones, for the local route header that
// RoCEv2 does not have. Then it covers the IP header, the UDP header, the BTH and all that follows.
// These fields are replaced by ones: IPv4 type of service, time to live and header checksum; IPv6
// traffic class, flow label and hop limit; UDP checksum; BTH byte 4 (FECN, BECN, reserved). IPv4
// identification and flags are covered. The ICRC is stored least significant byte first, behind the
// pad.
//
// The headers that contain replaced fields are a whole number of 8-byte words, except for the last
// part of the BTH behind IPv6, in which nothing is replaced. So the headers are processed by eight
// tables, a word at a time, after an or with a mask. If fewer than icrcShort bytes follow, the
// tables process them, too. Otherwise hash/crc32 does, which is fastest on long input and slow to
// start. Nothing is copied. A Sealer, which has memory for a copy, is faster.

const icrcLen = 4

// icrcSeed is the state of the CRC register after the eight bytes of ones, before the final
// complement of CRC-32.
const icrcSeed = 0xdebb20e3

// icrcMaskIPv4 and icrcMaskIPv6 have ones in the bits that the ICRC takes as ones. They are or-ed
// onto the headers, as little-endian words from the IP header on.
var (
	icrcMaskIPv4 = [...]uint64{
		0x0000_0000_0000_ff00, // byte 1: type of service
		0x0000_0000_ffff_00ff, // bytes 8, 10, 11: time to live, header checksum
		0,                     // destination address, UDP ports
		0x0000_0000_ffff_0000, // bytes 26, 27: UDP checksum; BTH bytes 0 to 3
		0x0000_0000_0000_00ff, // byte 32: BTH byte 4
	}
	icrcMaskIPv6 = [...]uint64{
		0xff00_0000_ffff_ff0f, // bytes 0 to 3: traffic class, flow label; byte 7: hop limit
		0, 0, 0, 0,            // addresses
		0xffff_0000_0000_0000, // bytes 46, 47: UDP checksum
		0x0000_00ff_0000_0000, // byte 52: BTH byte 4
	}
)

// icrcTables[k][x] is the CRC register after byte x and then k bytes of zero.
var icrcTables = func() (t [8][256]uint32) {
	t[0] = *crc32.IEEETable
	for x := range t[0] {
		for k := 1; k < len(t); k++ {
			c := t[k-1][x]
			t[k][x] = t[0][uint8(c)] ^ c>>8
		}
	}
	return t
}()

// icrcWord advances the CRC register over eight bytes, given as a little-endian word.
func icrcWord(crc uint32, w uint64) uint32 {
	w ^= uint64(crc)
	t := &icrcTables
	return t[7][uint8(w)] ^ t[6][uint8(w>>8)] ^ t[5][uint8(w>>16)] ^ t[4][uint8(w>>24)] ^
		t[3][uint8(w>>32)] ^ t[2][uint8(w>>40)] ^ t[1][uint8(w>>48)] ^ t[0][w>>56]
}

// icrcShort is the length in bytes from which hash/crc32 is faster than the tables.
const icrcShort = 32

// icrcRest advances the CRC register over b with the tables: first over whole words, then over
// single bytes.
func icrcRest(crc uint32, b []byte) uint32 {
	for ; len(b) >= 8; b = b[8:] {
		crc = icrcWord(crc, binary.LittleEndian.Uint64(b))
	}
	t := &icrcTables
	if len(b) >= 4 {
		w := crc ^ binary.LittleEndian.Uint32(b)
		crc = t[3][uint8(w)] ^ t[2][uint8(w>>8)] ^ t[1][uint8(w>>16)] ^ t[0][w>>24]
		b = b[4:]
	}
	for _, x := range b {
		crc = t[0][uint8(crc)^x] ^ crc>>8
	}
	return crc
}

// icrc computes the ICRC of b, which begins with the IP header and ends before the ICRC. b has at
// least an IP header, UDP header and BTH.
func icrc(b []byte, v6 bool) uint32 {
	masks := icrcMaskIPv4[:]
	if v6 {
		masks = icrcMaskIPv6[:]
	}
	crc := uint32(icrcSeed)
	for _, m := range masks {
		crc = icrcWord(crc, binary.LittleEndian.Uint64(b)|m)
		b = b[8:]
	}
	if len(b) < icrcShort {
		return ^icrcRest(crc, b)
	}
	return crc32.Update(^crc, crc32.IEEETable, b)
}

// icrcSpan returns the bytes of a frame that the ICRC covers (from the IP header on) and the ICRC
// itself. ok is false if the frame is no complete RoCEv2 packet, or has IPv4 options.
func icrcSpan(frame []byte) (covered, sum []byte, v6, ok bool) {
	ip, v6, ok := locate(frame)
	if !ok {
		return nil, nil, false, false
	}
	b := frame[ip:]
	ipLen, end := ipv4Len, int(binary.BigEndian.Uint16(b[2:]))
	if v6 {
		ipLen, end = ipv6Len, ipv6Len+int(binary.BigEndian.Uint16(b[4:]))
	} else if b[0] != 4<<4|ipv4Len/4 {
		return nil, nil, false, false // IPv4 options are not supported
	}
	if end > len(b) || end < ipLen+udpLen+bthLen+icrcLen {
		return nil, nil, false, false
	}
	return b[:end-icrcLen], b[end-icrcLen : end], v6, true
}

// CheckICRC reports whether frame is a RoCEv2 frame with a correct ICRC. It uses the length in the
// IP header, and so ignores Ethernet padding.
func CheckICRC(frame []byte) bool {
	covered, sum, v6, ok := icrcSpan(frame)
	return ok && binary.LittleEndian.Uint32(sum) == icrc(covered, v6)
}
