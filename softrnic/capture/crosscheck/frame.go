package crosscheck

import (
	"fmt"
	"net/netip"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	roce "github.com/rdmalab/rdmalab/softrnic/wire/layers"
)

// frameOf converts the layers that gopacket found to the struct of package wire, so that the two
// can be compared field by field. It fails if a layer does not belong to RoCEv2, or if the address
// methods of the struct return other addresses than the IP layer has.
func frameOf(p gopacket.Packet) (*wire.Frame, error) {
	f := new(wire.Frame)
	for _, l := range p.Layers() {
		switch l := l.(type) {
		case *layers.Ethernet:
			f.Eth.Dst, f.Eth.Src, f.Eth.Type = wire.MAC(l.DstMAC), wire.MAC(l.SrcMAC), uint16(l.EthernetType)
		case *layers.Dot1Q:
			dei := uint16(0)
			if l.DropEligible {
				dei = 1
			}
			f.Eth.Tagged, f.Eth.Type = true, uint16(l.Type)
			f.Eth.TCI = uint16(l.Priority)<<13 | dei<<12 | l.VLANIdentifier
		case *layers.IPv4:
			f.IPv4 = wire.IPv4{
				TOS: l.TOS, ID: l.Id, DF: l.Flags&layers.IPv4DontFragment != 0, Reserved: l.Flags&layers.IPv4EvilBit != 0, TTL: l.TTL, Protocol: uint8(l.Protocol),
				Src: [4]byte(l.SrcIP), Dst: [4]byte(l.DstIP), TotalLen: l.Length,
			}
		case *layers.IPv6:
			f.V6 = true
			f.IPv6 = wire.IPv6{
				TrafficClass: l.TrafficClass, FlowLabel: l.FlowLabel, HopLimit: l.HopLimit, NextHeader: uint8(l.NextHeader),
				Src: [16]byte(l.SrcIP), Dst: [16]byte(l.DstIP), PayloadLen: l.Length,
			}
		case *layers.UDP:
			f.UDP = wire.UDP{SrcPort: uint16(l.SrcPort), DstPort: uint16(l.DstPort), Checksum: l.Checksum, Length: l.Length}
		default:
			if err := addTransport(f, l); err != nil {
				return nil, err
			}
		}
	}
	src, dst := p.NetworkLayer().NetworkFlow().Endpoints()
	// Compare bytes: the text of an IPv4-mapped IPv6 address would be that of the IPv4 address.
	if a, _ := netip.AddrFromSlice(src.Raw()); a != f.SrcAddr() {
		return nil, fmt.Errorf("SrcAddr() = %v, want %v", f.SrcAddr(), a)
	}
	if a, _ := netip.AddrFromSlice(dst.Raw()); a != f.DstAddr() {
		return nil, fmt.Errorf("DstAddr() = %v, want %v", f.DstAddr(), a)
	}
	return f, nil
}

// addTransport sets the fields of f for l, a layer of package softrnic/wire/layers. It fails for
// any other layer.
func addTransport(f *wire.Frame, l gopacket.Layer) error {
	switch l := l.(type) {
	case *roce.BTH:
		f.BTH = wire.BTH{
			Opcode: wire.Opcode(l.Opcode), Solicited: l.SolicitedEvent, MigReq: l.MigReq, Pad: l.PadCount, Version: l.TVer,
			PKey: l.PKey, FECN: l.FECN, BECN: l.BECN, Reserved6: l.Reserved6, DestQP: wire.QPN(l.DestQP),
			AckReq: l.AckReq, Reserved7: l.Reserved7, PSN: wire.PSN(l.PSN),
		}
	case *roce.DETH:
		f.DETH = wire.DETH{QKey: l.QKey, Reserved: l.Reserved, SrcQP: wire.QPN(l.SrcQP)}
	case *roce.FETH:
		f.FETH = wire.FETH{Reserved: l.Reserved, Level: l.Selectivity, Placement: l.Placement}
	case *roce.RETH:
		f.RETH = wire.RETH{VA: l.VA, RKey: l.RKey, Length: l.DMALength}
	case *roce.AtomicETH:
		f.AtomicETH = wire.AtomicETH{VA: l.VA, RKey: l.RKey, SwapOrAdd: l.SwapOrAdd, Compare: l.Compare}
	case *roce.AtomicMasks:
		f.Masks = wire.AtomicMasks{Swap: l.Swap, CompareOrBoundary: l.CompareOrBoundary}
	case *roce.AETH:
		f.AETH = wire.AETH{Syndrome: wire.Syndrome(l.Syndrome), MSN: l.MSN}
	case *roce.AtomicAckETH:
		f.AtomicAck = l.Original
	case *roce.ImmDt:
		f.ImmDt = l.Immediate
	case *roce.IETH:
		f.IETH = l.RKey
	case *roce.CNP:
		f.CNP = l.Reserved
	case *roce.Payload:
		f.Payload = l.Data
	case *roce.ICRC:
		f.ICRC = l.Value
	default:
		return fmt.Errorf("unexpected layer %v", l.LayerType())
	}
	return nil
}
