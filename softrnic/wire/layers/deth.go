package layers

import (
	"encoding/binary"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// DETH is the datagram extended transport header.
type DETH struct {
	layers.BaseLayer
	QKey     uint32
	Reserved uint8
	SrcQP    uint32 // 24 bits
}

const dethLength = 8

// LayerType is LayerTypeDETH.
func (h *DETH) LayerType() gopacket.LayerType { return LayerTypeDETH }

// DecodeFromBytes reads the header.
func (h *DETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := take(data, dethLength, "DETH", df); err != nil {
		return err
	}
	h.BaseLayer = layers.BaseLayer{Contents: data[:dethLength], Payload: data[dethLength:]}
	h.QKey = binary.BigEndian.Uint32(data)
	h.Reserved = data[4]
	h.SrcQP = uint32(data[5])<<16 | uint32(data[6])<<8 | uint32(data[7])
	return nil
}

// SerializeTo writes the header.
func (h *DETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	data, err := b.PrependBytes(dethLength)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint32(data, h.QKey)
	data[4], data[5], data[6], data[7] = h.Reserved, byte(h.SrcQP>>16), byte(h.SrcQP>>8), byte(h.SrcQP)
	return nil
}
