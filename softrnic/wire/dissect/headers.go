package dissect

import (
	"encoding/binary"

	"github.com/google/gopacket"
)

// decode reads a header's fields from the first bytes of data; `fields` are pointers to them. It
// also sets in b which bytes belong to the header and which are behind it.
func (b *Base) decode(name string, data []byte, df gopacket.DecodeFeedback, fields ...any) error {
	n := 0
	for _, f := range fields {
		n += binary.Size(f)
	}
	if err := take(data, n, name, df); err != nil {
		return err
	}
	*b = Base{Contents: data[:n], Payload: data[n:]}
	for _, f := range fields {
		size, err := binary.Decode(data, binary.BigEndian, f)
		if err != nil {
			return err
		}
		data = data[size:]
	}
	return nil
}

// DETH is the datagram extended transport header.
type DETH struct {
	Base
	QKey     uint32
	Reserved uint8
	SrcQP    uint32 // 24 bits
}

func (h *DETH) LayerType() gopacket.LayerType { return LayerTypeDETH }

func (h *DETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	var last uint32
	err := h.Base.decode("DETH", data, df, &h.QKey, &last)
	h.Reserved, h.SrcQP = uint8(last>>24), last&0xffffff
	return err
}

// XRCETH is the header of requests of extended reliable connections: the shared receive queue.
type XRCETH struct {
	Base
	Reserved uint8
	SRQN     uint32 // 24 bits
}

func (h *XRCETH) LayerType() gopacket.LayerType { return LayerTypeXRCETH }

func (h *XRCETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	var word uint32
	err := h.Base.decode("XRCETH", data, df, &word)
	h.Reserved, h.SRQN = uint8(word>>24), word&0xffffff
	return err
}

// FETH is the flush extended transport header, in front of the RETH of a flush.
type FETH struct {
	Base
	Reserved    uint32 // 26 bits
	Selectivity uint8  // 2 bits
	Placement   uint8  // 4 bits
}

func (h *FETH) LayerType() gopacket.LayerType { return LayerTypeFETH }

func (h *FETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	var word uint32
	if err := h.Base.decode("FETH", data, df, &word); err != nil {
		return err
	}
	h.Reserved, h.Selectivity, h.Placement = word>>6, uint8(word>>4&3), uint8(word&0xf)
	return nil
}

// RETH is the RDMA extended transport header: the address, key and length of a WRITE or READ.
type RETH struct {
	Base
	VA        uint64
	RKey      uint32
	DMALength uint32 // bytes
}

func (h *RETH) LayerType() gopacket.LayerType { return LayerTypeRETH }

func (h *RETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return h.Base.decode("RETH", data, df, &h.VA, &h.RKey, &h.DMALength)
}

// AtomicETH is the header of compare-and-swap and of fetch-and-add requests.
type AtomicETH struct {
	Base
	VA        uint64
	RKey      uint32
	SwapOrAdd uint64
	Compare   uint64
}

func (h *AtomicETH) LayerType() gopacket.LayerType { return LayerTypeAtomicETH }

func (h *AtomicETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return h.Base.decode("AtomicETH", data, df, &h.VA, &h.RKey, &h.SwapOrAdd, &h.Compare)
}

// AtomicMasks is the header of masked atomics behind their AtomicETH.
type AtomicMasks struct {
	Base
	Swap              uint64
	CompareOrBoundary uint64
}

func (h *AtomicMasks) LayerType() gopacket.LayerType { return LayerTypeAtomicMasks }

func (h *AtomicMasks) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return h.Base.decode("AtomicMasks", data, df, &h.Swap, &h.CompareOrBoundary)
}

// AETH is the acknowledge extended transport header.
type AETH struct {
	Base
	Syndrome uint8
	MSN      uint32 // 24 bits
}

func (h *AETH) LayerType() gopacket.LayerType { return LayerTypeAETH }

func (h *AETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	var word uint32
	err := h.Base.decode("AETH", data, df, &word)
	h.Syndrome, h.MSN = uint8(word>>24), word&0xffffff
	return err
}

// AtomicAckETH is the header with the value that memory held before an atomic.
type AtomicAckETH struct {
	Base
	Original uint64
}

func (h *AtomicAckETH) LayerType() gopacket.LayerType { return LayerTypeAtomicAckETH }

func (h *AtomicAckETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return h.Base.decode("AtomicAckETH", data, df, &h.Original)
}

// ImmDt is the header that carries immediate data.
type ImmDt struct {
	Base
	Immediate uint32
}

func (h *ImmDt) LayerType() gopacket.LayerType { return LayerTypeImmDt }

func (h *ImmDt) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return h.Base.decode("ImmDt", data, df, &h.Immediate)
}

// IETH is the invalidate extended transport header.
type IETH struct {
	Base
	RKey uint32
}

func (h *IETH) LayerType() gopacket.LayerType { return LayerTypeIETH }

func (h *IETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return h.Base.decode("IETH", data, df, &h.RKey)
}

// CNP has the reserved bytes after the BTH of a congestion notification packet.
type CNP struct {
	Base
	Reserved [16]byte
}

func (h *CNP) LayerType() gopacket.LayerType { return LayerTypeCNP }

func (h *CNP) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return h.Base.decode("CNP", data, df, &h.Reserved)
}
