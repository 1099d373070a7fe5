package wire

import "encoding/binary"

//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------+-+-+---+-------+-------------------------------+
//	|    opcode     |S|M|pad| TVer  |         partition key         |
//	+-+-+-----------+-+-+---+-------+-------------------------------+
//	|F|B| reserved6 |                destination QP                 |
//	+-+-+-----------+-----------------------------------------------+
//	|A|  reserved7  |            packet sequence number             |
//	+-+-------------+-----------------------------------------------+

const (
	bthLen = 12

	bthSolicited = 0x80
	bthMigReq    = 0x40
	bthPadShift  = 4
	bthPadMask   = 3
	bthVersion   = 0x0f
	bthFECN      = 0x80
	bthBECN      = 0x40
	bthReserved6 = 0x3f
	bthAckReq    = 0x80
	bthReserved7 = 0x7f
)

// DefaultPKey is the partition key of a full member of the default partition.
const DefaultPKey uint16 = 0xffff

// mask24 selects the 24 bits of a QPN or MSN.
const mask24 = 1<<24 - 1

// BTH is the base transport header (IBTA 9.2).
type BTH struct {
	Opcode    Opcode
	Solicited bool
	MigReq    bool
	// Pad is the number of pad bytes behind the payload, set by Parse. Packet.AppendTo ignores it
	// and computes the number.
	Pad     uint8
	Version uint8 // TVer, 0
	PKey    uint16
	FECN    bool
	BECN    bool
	// Reserved6 are the six reserved bits beside FECN and BECN; carried so that a rewrite changes
	// nothing.
	Reserved6 uint8
	DestQP    QPN
	AckReq    bool
	// Reserved7 are the seven reserved bits beside AckReq; carried as well, and covered by the
	// ICRC.
	Reserved7 uint8
	PSN       PSN
}

// Parse reads the header at the start of b.
func (h *BTH) Parse(b []byte) error {
	if err := need(b, bthLen, "BTH"); err != nil {
		return err
	}
	qp, psn := binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	*h = BTH{
		Opcode:    Opcode(b[0]),
		Solicited: b[1]&bthSolicited != 0, MigReq: b[1]&bthMigReq != 0,
		Pad: b[1] >> bthPadShift & bthPadMask, Version: b[1] & bthVersion,
		PKey: binary.BigEndian.Uint16(b[2:]),
		FECN: b[4]&bthFECN != 0, BECN: b[4]&bthBECN != 0, Reserved6: b[4] & bthReserved6,
		DestQP: QPN(qp & mask24),
		AckReq: b[8]&bthAckReq != 0, Reserved7: b[8] & bthReserved7,
		PSN: PSN(psn & psnMask),
	}
	return nil
}

// AppendTo appends the header to b.
func (h *BTH) AppendTo(b []byte) []byte {
	return append(b, byte(h.Opcode),
		bit(h.Solicited, bthSolicited)|bit(h.MigReq, bthMigReq)|h.Pad&bthPadMask<<bthPadShift|h.Version&bthVersion,
		byte(h.PKey>>8), byte(h.PKey),
		bit(h.FECN, bthFECN)|bit(h.BECN, bthBECN)|h.Reserved6&bthReserved6,
		byte(h.DestQP>>16), byte(h.DestQP>>8), byte(h.DestQP),
		bit(h.AckReq, bthAckReq)|h.Reserved7&bthReserved7,
		byte(h.PSN>>16), byte(h.PSN>>8), byte(h.PSN))
}

// Len is 12 bytes.
func (h *BTH) Len() int { return bthLen }

// bit is mask if set, else 0.
func bit(set bool, mask uint8) uint8 {
	if set {
		return mask
	}
	return 0
}
