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
	// Reserved6 are the six reserved bits beside FECN and BECN. Parse keeps them, so that AppendTo
	// writes them unchanged.
	Reserved6 uint8
	DestQP    QPN
	AckReq    bool
	// Reserved7 are the seven reserved bits beside AckReq. Parse keeps them, so that AppendTo writes
	// them unchanged. The ICRC covers them.
	Reserved7 uint8
	PSN       PSN
}

func (h *BTH) Parse(b []byte) error {
	if err := need(b, bthLen, "BTH"); err != nil {
		return err
	}
	qp, psn := binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	h.Opcode = Opcode(b[0])
	h.Solicited, h.MigReq = b[1]&bthSolicited != 0, b[1]&bthMigReq != 0
	h.Pad, h.Version = b[1]>>bthPadShift&bthPadMask, b[1]&bthVersion
	h.PKey = binary.BigEndian.Uint16(b[2:])
	h.FECN, h.BECN, h.Reserved6 = b[4]&bthFECN != 0, b[4]&bthBECN != 0, b[4]&bthReserved6
	h.DestQP = QPN(qp & mask24)
	h.AckReq, h.Reserved7 = b[8]&bthAckReq != 0, b[8]&bthReserved7
	h.PSN = PSN(psn & psnMask)
	return nil
}

func (h *BTH) AppendTo(b []byte) []byte { return h.appendPadded(b, h.Pad) }

// appendPadded does the work of AppendTo with pad count pad instead of h.Pad.
func (h *BTH) appendPadded(b []byte, pad uint8) []byte {
	flags := bit(h.Solicited, bthSolicited) | bit(h.MigReq, bthMigReq) | pad&bthPadMask<<bthPadShift | h.Version&bthVersion
	notice := bit(h.FECN, bthFECN) | bit(h.BECN, bthBECN) | h.Reserved6&bthReserved6
	ack := bit(h.AckReq, bthAckReq) | h.Reserved7&bthReserved7
	b = binary.BigEndian.AppendUint32(b, uint32(h.Opcode)<<24|uint32(flags)<<16|uint32(h.PKey))
	b = binary.BigEndian.AppendUint32(b, uint32(notice)<<24|uint32(h.DestQP)&mask24)
	return binary.BigEndian.AppendUint32(b, uint32(ack)<<24|uint32(h.PSN)&psnMask)
}

func bit(set bool, mask uint8) uint8 {
	if set {
		return mask
	}
	return 0
}
