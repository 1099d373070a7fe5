package dissect

import (
	"github.com/google/gopacket"
)

// BTH is the base transport header.
type BTH struct {
	Base
	Opcode         uint8
	SolicitedEvent bool
	MigReq         bool
	PadCount       uint8 // bytes
	TVer           uint8
	PKey           uint16
	FECN, BECN     bool
	Reserved6      uint8
	DestQP         uint32 // 24 bits
	AckReq         bool
	Reserved7      uint8
	PSN            uint32 // 24 bits
}

const bthLength = 12

func (h *BTH) LayerType() gopacket.LayerType { return LayerTypeBTH }

func (h *BTH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := take(data, bthLength, "BTH", df); err != nil {
		return err
	}
	second, fifth, ninth := data[1], data[4], data[8]
	*h = BTH{
		Base:           Base{Contents: data[:bthLength], Payload: data[bthLength:]},
		Opcode:         data[0],
		SolicitedEvent: second>>7 == 1,
		MigReq:         second>>6&1 == 1,
		PadCount:       second >> 4 & 3,
		TVer:           second & 15,
		PKey:           uint16(data[2])<<8 | uint16(data[3]),
		FECN:           fifth>>7 == 1,
		BECN:           fifth>>6&1 == 1,
		Reserved6:      fifth & 63,
		DestQP:         uint32(data[5])<<16 | uint32(data[6])<<8 | uint32(data[7]),
		AckReq:         ninth>>7 == 1,
		Reserved7:      ninth & 127,
		PSN:            uint32(data[9])<<16 | uint32(data[10])<<8 | uint32(data[11]),
	}
	return nil
}

func decodeBTH(data []byte, p gopacket.PacketBuilder) error {
	h := new(BTH)
	if err := h.DecodeFromBytes(data, p); err != nil {
		return err
	}
	return chain{headers: announced(h.Opcode), pad: int(h.PadCount)}.after(h, p)
}
