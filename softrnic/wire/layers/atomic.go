package layers

import (
	"encoding/binary"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// AtomicETH is the header of compare-and-swap and of fetch-and-add requests.
type AtomicETH struct {
	layers.BaseLayer
	VA        uint64
	RKey      uint32
	SwapOrAdd uint64
	Compare   uint64
}

const atomicETHLength = 28

// LayerType is LayerTypeAtomicETH.
func (h *AtomicETH) LayerType() gopacket.LayerType { return LayerTypeAtomicETH }

// DecodeFromBytes reads the header.
func (h *AtomicETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := take(data, atomicETHLength, "AtomicETH", df); err != nil {
		return err
	}
	h.BaseLayer = layers.BaseLayer{Contents: data[:atomicETHLength], Payload: data[atomicETHLength:]}
	h.VA = binary.BigEndian.Uint64(data[0:8])
	h.RKey = binary.BigEndian.Uint32(data[8:12])
	h.SwapOrAdd = binary.BigEndian.Uint64(data[12:20])
	h.Compare = binary.BigEndian.Uint64(data[20:28])
	return nil
}

// SerializeTo writes the header.
func (h *AtomicETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	data, err := b.PrependBytes(atomicETHLength)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint64(data[0:8], h.VA)
	binary.BigEndian.PutUint32(data[8:12], h.RKey)
	binary.BigEndian.PutUint64(data[12:20], h.SwapOrAdd)
	binary.BigEndian.PutUint64(data[20:28], h.Compare)
	return nil
}

// AtomicMasks is the header of masked atomics behind their AtomicETH.
type AtomicMasks struct {
	layers.BaseLayer
	Swap              uint64
	CompareOrBoundary uint64
}

const atomicMasksLength = 16

// LayerType is LayerTypeAtomicMasks.
func (h *AtomicMasks) LayerType() gopacket.LayerType { return LayerTypeAtomicMasks }

// DecodeFromBytes reads the header.
func (h *AtomicMasks) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := take(data, atomicMasksLength, "AtomicMasks", df); err != nil {
		return err
	}
	h.BaseLayer = layers.BaseLayer{Contents: data[:atomicMasksLength], Payload: data[atomicMasksLength:]}
	h.Swap = binary.BigEndian.Uint64(data[0:8])
	h.CompareOrBoundary = binary.BigEndian.Uint64(data[8:16])
	return nil
}

// SerializeTo writes the header.
func (h *AtomicMasks) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	data, err := b.PrependBytes(atomicMasksLength)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint64(data[0:8], h.Swap)
	binary.BigEndian.PutUint64(data[8:16], h.CompareOrBoundary)
	return nil
}

// AtomicAckETH is the header with the value that memory held before an atomic.
type AtomicAckETH struct {
	layers.BaseLayer
	Original uint64
}

const atomicAckETHLength = 8

// LayerType is LayerTypeAtomicAckETH.
func (h *AtomicAckETH) LayerType() gopacket.LayerType { return LayerTypeAtomicAckETH }

// DecodeFromBytes reads the header.
func (h *AtomicAckETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := take(data, atomicAckETHLength, "AtomicAckETH", df); err != nil {
		return err
	}
	h.BaseLayer = layers.BaseLayer{Contents: data[:atomicAckETHLength], Payload: data[atomicAckETHLength:]}
	h.Original = binary.BigEndian.Uint64(data)
	return nil
}

// SerializeTo writes the header.
func (h *AtomicAckETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	data, err := b.PrependBytes(atomicAckETHLength)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint64(data, h.Original)
	return nil
}
