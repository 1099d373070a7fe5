package wire

import "encoding/binary"

//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                       destination MAC                         |
//	+                               +-------------------------------+
//	|                               |                               |
//	+-------------------------------+                               +
//	|                          source MAC                           |
//	+-------------------------------+-----+-+-----------------------+
//	|        0x8100 (if tagged)     | PCP |D|        VLAN id        |
//	+-------------------------------+-----+-+-----------------------+
//	|           EtherType           |
//	+-------------------------------+

// EtherType values that the codec knows.
const (
	EtherTypeIPv4 uint16 = 0x0800
	EtherTypeARP  uint16 = 0x0806
	EtherTypeVLAN uint16 = 0x8100
	EtherTypeIPv6 uint16 = 0x86dd
)

const (
	ethernetLen = 14
	vlanTagLen  = 4
)

// Ethernet is the link header with an optional 802.1Q tag.
type Ethernet struct {
	Dst, Src MAC
	// Tagged: a VLAN tag is present. TCI is its priority, DEI and VLAN id.
	Tagged bool
	TCI    uint16
	// Type is the EtherType behind the addresses or, in a tagged frame, behind the tag. Frame.AppendTo
	// ignores it.
	Type uint16
}

// VLAN returns the VLAN identifier of the tag, 12 bits.
func (h *Ethernet) VLAN() uint16 { return h.TCI & 0xfff }

func (h *Ethernet) Parse(b []byte) error {
	if err := need(b, ethernetLen, "Ethernet"); err != nil {
		return err
	}
	h.Dst, h.Src = MAC(b), MAC(b[6:])
	h.Tagged, h.TCI, h.Type = false, 0, binary.BigEndian.Uint16(b[12:])
	if h.Type != EtherTypeVLAN {
		return nil
	}
	if err := need(b, ethernetLen+vlanTagLen, "802.1Q"); err != nil {
		return err
	}
	h.Tagged = true
	h.TCI = binary.BigEndian.Uint16(b[14:])
	h.Type = binary.BigEndian.Uint16(b[16:])
	return nil
}

func (h *Ethernet) AppendTo(b []byte) []byte { return h.appendAs(b, h.Type) }

// appendAs does the work of AppendTo with EtherType etherType instead of h.Type.
func (h *Ethernet) appendAs(b []byte, etherType uint16) []byte {
	b = append(b, h.Dst[:]...)
	b = append(b, h.Src[:]...)
	if h.Tagged {
		b = binary.BigEndian.AppendUint16(b, EtherTypeVLAN)
		b = binary.BigEndian.AppendUint16(b, h.TCI)
	}
	return binary.BigEndian.AppendUint16(b, etherType)
}

func (h *Ethernet) Len() int {
	if h.Tagged {
		return ethernetLen + vlanTagLen
	}
	return ethernetLen
}
