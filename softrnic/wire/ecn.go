package wire

import "encoding/binary"

// ECN is the congestion field of an IP header, its low two bits of the TOS byte or traffic class
// (RFC 3168, 5).
type ECN uint8

// Values of ECN. A sender sets ECT0 or ECT1 to say that it reacts to marks, and NotECT if it does not
// (CA17-14). A switch with a long queue sets CE, and only on packets with ECT0 or ECT1.
const (
	NotECT ECN = 0
	ECT1   ECN = 1
	ECT0   ECN = 2
	CE     ECN = 3
)

const ecnMask = 3

func (e ECN) String() string { return [...]string{"not-ECT", "ECT(1)", "ECT(0)", "CE"}[e&ecnMask] }

// trafficClass returns the byte with DSCP and ECN of an Ethernet frame. v4 is the IPv4 header, nil for
// IPv6. ok is false if the frame has no complete IP header.
func trafficClass(frame []byte) (class uint8, v4, v6 []byte, ok bool) {
	h, etherType := ipHeader(frame)
	switch {
	case etherType == EtherTypeIPv4 && len(h) >= ipv4Len && h[0]>>4 == 4:
		return h[1], h, nil, true
	case etherType == EtherTypeIPv6 && len(h) >= ipv6Len && h[0]>>4 == 6:
		return h[0]<<4 | h[1]>>4, nil, h, true
	}
	return 0, nil, nil, false
}

// ECNOf returns the congestion field of an Ethernet frame. ok is false if the frame has no complete IP
// header.
func ECNOf(frame []byte) (e ECN, ok bool) {
	class, _, _, ok := trafficClass(frame)
	return ECN(class & ecnMask), ok
}

// DSCPOf returns the differentiated services code point of an Ethernet frame, 0 to 63. ok is false if
// the frame has no complete IP header.
func DSCPOf(frame []byte) (dscp uint8, ok bool) {
	class, _, _, ok := trafficClass(frame)
	return class >> 2, ok
}

// MarkCE sets CE in an Ethernet frame whose sender has set ECT0 or ECT1, in place. It updates the IPv4
// header checksum from the changed word alone (RFC 1624, equation 3), so that a wrong checksum stays
// wrong. The ICRC does not cover the field. If the frame is not IP or not ECN-capable, MarkCE returns
// false and changes nothing; a frame with CE stays as it is, and the result is true.
func MarkCE(frame []byte) bool {
	if e, ok := ECNOf(frame); !ok || e == NotECT {
		return false
	}
	return SetCE(frame)
}

// SetCE is MarkCE for frames of any sender, also of one that is not ECN-capable: a fault, which no switch
// makes. It returns false if the frame is not IP.
func SetCE(frame []byte) bool {
	class, v4, v6, ok := trafficClass(frame)
	if !ok || ECN(class&ecnMask) == CE {
		return ok
	}
	if v6 != nil {
		v6[1] |= uint8(CE) << 4
		return true
	}
	before := binary.BigEndian.Uint16(v4)
	v4[1] |= uint8(CE)
	sum := uint64(^binary.BigEndian.Uint16(v4[10:])) + uint64(^before) + uint64(binary.BigEndian.Uint16(v4))
	binary.BigEndian.PutUint16(v4[10:], fold(sum))
	return true
}
