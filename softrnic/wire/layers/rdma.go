package layers

import (
	"encoding/binary"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// RETH is the RDMA extended transport header: the address, key and length of a WRITE or READ.
type RETH struct {
	layers.BaseLayer
	VA        uint64
	RKey      uint32
	DMALength uint32 // bytes
}

const rethLength = 16

// LayerType is LayerTypeRETH.
func (h *RETH) LayerType() gopacket.LayerType { return LayerTypeRETH }

// DecodeFromBytes reads the header.
func (h *RETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := take(data, rethLength, "RETH", df); err != nil {
		return err
	}
	h.BaseLayer = layers.BaseLayer{Contents: data[:rethLength], Payload: data[rethLength:]}
	h.VA = binary.BigEndian.Uint64(data[0:8])
	h.RKey = binary.BigEndian.Uint32(data[8:12])
	h.DMALength = binary.BigEndian.Uint32(data[12:16])
	return nil
}

// SerializeTo writes the header.
func (h *RETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	data, err := b.PrependBytes(rethLength)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint64(data[0:8], h.VA)
	binary.BigEndian.PutUint32(data[8:12], h.RKey)
	binary.BigEndian.PutUint32(data[12:16], h.DMALength)
	return nil
}

// ImmDt is the header that carries immediate data.
type ImmDt struct {
	layers.BaseLayer
	Immediate uint32
}

const immDtLength = 4

// LayerType is LayerTypeImmDt.
func (h *ImmDt) LayerType() gopacket.LayerType { return LayerTypeImmDt }

// DecodeFromBytes reads the header.
func (h *ImmDt) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := take(data, immDtLength, "ImmDt", df); err != nil {
		return err
	}
	h.BaseLayer = layers.BaseLayer{Contents: data[:immDtLength], Payload: data[immDtLength:]}
	h.Immediate = binary.BigEndian.Uint32(data)
	return nil
}

// SerializeTo writes the header.
func (h *ImmDt) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	data, err := b.PrependBytes(immDtLength)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint32(data, h.Immediate)
	return nil
}

// IETH is the invalidate extended transport header.
type IETH struct {
	layers.BaseLayer
	RKey uint32
}

const iethLength = 4

// LayerType is LayerTypeIETH.
func (h *IETH) LayerType() gopacket.LayerType { return LayerTypeIETH }

// DecodeFromBytes reads the header.
func (h *IETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := take(data, iethLength, "IETH", df); err != nil {
		return err
	}
	h.BaseLayer = layers.BaseLayer{Contents: data[:iethLength], Payload: data[iethLength:]}
	h.RKey = binary.BigEndian.Uint32(data)
	return nil
}

// SerializeTo writes the header.
func (h *IETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	data, err := b.PrependBytes(iethLength)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint32(data, h.RKey)
	return nil
}
