package layers

import (
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// AETH is the acknowledge extended transport header.
type AETH struct {
	layers.BaseLayer
	Syndrome uint8
	MSN      uint32 // 24 bits
}

const aethLength = 4

// LayerType is LayerTypeAETH.
func (h *AETH) LayerType() gopacket.LayerType { return LayerTypeAETH }

// DecodeFromBytes reads the header.
func (h *AETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := take(data, aethLength, "AETH", df); err != nil {
		return err
	}
	h.BaseLayer = layers.BaseLayer{Contents: data[:aethLength], Payload: data[aethLength:]}
	h.Syndrome = data[0]
	h.MSN = uint32(data[1])<<16 | uint32(data[2])<<8 | uint32(data[3])
	return nil
}

// SerializeTo writes the header.
func (h *AETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	data, err := b.PrependBytes(aethLength)
	if err != nil {
		return err
	}
	data[0], data[1], data[2], data[3] = h.Syndrome, byte(h.MSN>>16), byte(h.MSN>>8), byte(h.MSN)
	return nil
}
