package layers

import (
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// CNP has the reserved bytes after the BTH of a congestion notification packet.
type CNP struct {
	layers.BaseLayer
	Reserved [16]byte
}

const cnpLength = 16

// LayerType is LayerTypeCNP.
func (h *CNP) LayerType() gopacket.LayerType { return LayerTypeCNP }

// DecodeFromBytes reads the header.
func (h *CNP) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := take(data, cnpLength, "CNP", df); err != nil {
		return err
	}
	h.BaseLayer = layers.BaseLayer{Contents: data[:cnpLength], Payload: data[cnpLength:]}
	copy(h.Reserved[:], data)
	return nil
}

// SerializeTo writes the header.
func (h *CNP) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	data, err := b.PrependBytes(cnpLength)
	if err != nil {
		return err
	}
	copy(data, h.Reserved[:])
	return nil
}
