package wire

import (
	"encoding/binary"
	"hash/crc32"
)

// EtherTypeRoCEv1 is the EtherType of RoCEv1.
const EtherTypeRoCEv1 = 0x8915

// nextHeaderIB is the next header of a GRH before a BTH.
const nextHeaderIB = 0x1b

// FrameV1 is a whole RoCEv1 frame: behind the Ethernet header a global route header (GRH), and no UDP. The
// GRH has the layout of an IPv6 header, and the addresses are GIDs. No NIC and no switch of a rack speaks
// RoCEv1: FrameV1 counts its bytes beside those of a Frame.
type FrameV1 struct {
	Eth Ethernet
	GRH IPv6
	Packet
	ICRC uint32 // as in Frame
}

// icrcMaskGRH has ones in the bits of GRH and BTH that the ICRC takes as ones, as little-endian words:
// traffic class, flow label, hop limit; BTH byte 4.
var icrcMaskGRH = [...]uint64{0xff00_0000_ffff_ff0f, 0, 0, 0, 0, 0x0000_00ff_0000_0000}

// icrcV1 computes the ICRC of b, which begins with the GRH and ends before the ICRC.
func icrcV1(b []byte) uint32 {
	crc := uint32(icrcSeed)
	for _, m := range icrcMaskGRH {
		crc = icrcWord(crc, binary.LittleEndian.Uint64(b)|m)
		b = b[8:]
	}
	return crc32.Update(^crc, crc32.IEEETable, b)
}

// Len returns the length of the frame in bytes, without FCS.
func (f *FrameV1) Len() int { return f.Eth.Len() + ipv6Len + f.Packet.Len() + icrcLen }

// AppendTo appends the frame to b. It computes lengths, pad and ICRC; EtherType and next header are always
// those of RoCEv1.
func (f *FrameV1) AppendTo(b []byte) []byte {
	b = f.Eth.appendAs(b, EtherTypeRoCEv1)
	start := len(b)
	b = f.Packet.AppendTo(f.GRH.appendAs(b, nextHeaderIB, f.Packet.Len()+icrcLen))
	return binary.LittleEndian.AppendUint32(b, icrcV1(b[start:]))
}

// ParseFrameV1 parses a RoCEv1 frame without FCS into f and overwrites all its fields; f.Payload points into
// b. Padding behind the packet is ignored. The error is ErrNotRoCE or a *FormatError. The ICRC is compared:
// ok is false if it is wrong.
func ParseFrameV1(b []byte, f *FrameV1) (ok bool, err error) {
	*f = FrameV1{}
	if err := f.Eth.Parse(b); err != nil || f.Eth.Type != EtherTypeRoCEv1 {
		return false, ErrNotRoCE
	}
	b = b[f.Eth.Len():]
	if err := f.GRH.Parse(b); err != nil {
		return false, err
	}
	if f.GRH.NextHeader != nextHeaderIB {
		return false, ErrNotRoCE
	}
	b = b[:ipv6Len+int(f.GRH.PayloadLen)]
	if err := need(b[ipv6Len:], bthLen+icrcLen, "BTH"); err != nil {
		return false, err
	}
	end := len(b) - icrcLen
	f.ICRC = binary.LittleEndian.Uint32(b[end:])
	return f.ICRC == icrcV1(b[:end]), f.parse(b[ipv6Len:end:end])
}
