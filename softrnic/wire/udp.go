package wire

import "encoding/binary"

//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-------------------------------+-------------------------------+
//	|          source port          |    destination port (4791)    |
//	+-------------------------------+-------------------------------+
//	|            length             |           checksum            |
//	+-------------------------------+-------------------------------+

const udpLen = 8

// UDPPort is the destination port of RoCEv2 (A17.3.1).
const UDPPort = 4791

// UDP is the header of a RoCEv2 datagram.
type UDP struct {
	SrcPort, DstPort uint16
	// Checksum is 0 in packets that the NIC sends, also over IPv6. The NIC ignores it in received
	// packets, because the kernel may send packets over veth with an unfinished checksum (checksum
	// offload). The ICRC does not cover it. AppendTo writes it as it is, so code that changes a frame
	// must clear it.
	Checksum uint16

	// Length is the length of header and payload in bytes, which Parse sets. AppendTo ignores it and
	// uses the length of the payload.
	Length uint16
}

// Parse reads the header at the start of b, which is the whole IP payload: a UDP length other than
// len(b) is an error.
func (h *UDP) Parse(b []byte) error {
	if err := need(b, udpLen, "UDP"); err != nil {
		return err
	}
	*h = UDP{
		SrcPort: binary.BigEndian.Uint16(b), DstPort: binary.BigEndian.Uint16(b[2:]),
		Length: binary.BigEndian.Uint16(b[4:]), Checksum: binary.BigEndian.Uint16(b[6:]),
	}
	if int(h.Length) != len(b) {
		return &FormatError{Header: "UDP", Reason: ErrLength, Got: int(h.Length), Want: len(b)}
	}
	return nil
}

// AppendTo appends the header. payload is the number of bytes behind the header.
func (h *UDP) AppendTo(b []byte, payload int) []byte { return h.appendAs(b, h.DstPort, payload) }

// appendAs does the work of AppendTo with destination port dstPort instead of h.DstPort.
func (h *UDP) appendAs(b []byte, dstPort uint16, payload int) []byte {
	n := uint16(udpLen + payload)
	b = binary.BigEndian.AppendUint32(b, uint32(h.SrcPort)<<16|uint32(dstPort))
	return binary.BigEndian.AppendUint32(b, uint32(n)<<16|uint32(h.Checksum))
}

func (h *UDP) Len() int { return udpLen }
