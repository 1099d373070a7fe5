package layers

import (
	"encoding/binary"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// BTH is the base transport header.
type BTH struct {
	layers.BaseLayer
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

// LayerType is LayerTypeBTH.
func (h *BTH) LayerType() gopacket.LayerType { return LayerTypeBTH }

// DecodeFromBytes reads the header.
func (h *BTH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := take(data, bthLength, "BTH", df); err != nil {
		return err
	}
	second, fifth, ninth := data[1], data[4], data[8]
	*h = BTH{
		BaseLayer:      layers.BaseLayer{Contents: data[:bthLength], Payload: data[bthLength:]},
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

// SerializeTo writes the header. The pad count is written as it is: Serialize sets it.
func (h *BTH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	data, err := b.PrependBytes(bthLength)
	if err != nil {
		return err
	}
	word0 := uint32(h.Opcode)<<24 | flag(h.SolicitedEvent, 23) | flag(h.MigReq, 22) |
		uint32(h.PadCount&3)<<20 | uint32(h.TVer&15)<<16 | uint32(h.PKey)
	word1 := flag(h.FECN, 31) | flag(h.BECN, 30) | uint32(h.Reserved6&63)<<24 | h.DestQP&0xffffff
	word2 := flag(h.AckReq, 31) | uint32(h.Reserved7&127)<<24 | h.PSN&0xffffff
	binary.BigEndian.PutUint32(data, word0)
	binary.BigEndian.PutUint32(data[4:], word1)
	binary.BigEndian.PutUint32(data[8:], word2)
	return nil
}

func flag(set bool, position int) uint32 {
	if set {
		return 1 << position
	}
	return 0
}

func decodeBTH(data []byte, p gopacket.PacketBuilder) error {
	h := new(BTH)
	if err := h.DecodeFromBytes(data, p); err != nil {
		return err
	}
	return chain{headers: announced(h.Opcode), pad: int(h.PadCount)}.after(h, p)
}
