package crosscheck

import (
	"fmt"
	"net/netip"

	"github.com/google/gopacket"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/dissect"
)

// frameOf converts the layers that gopacket found to the struct of package wire, so that the two
// can be compared field by field. It fails if a layer does not belong to RoCEv2, or if the address
// methods of the struct return other addresses than the IP layer has.
func frameOf(p gopacket.Packet) (*wire.Frame, error) {
	f := new(wire.Frame)
	var src, dst netip.Addr
	for _, l := range p.Layers() {
		switch l := l.(type) {
		case *dissect.Ethernet:
			f.Eth.Dst, f.Eth.Src, f.Eth.Type = l.Dst, l.Src, l.Type
		case *dissect.Tag:
			f.Eth.Tagged, f.Eth.TCI, f.Eth.Type = true, l.TCI, l.Type
		case *dissect.IPv4:
			src, dst = netip.AddrFrom4(l.Src), netip.AddrFrom4(l.Dst)
			f.IPv4 = wire.IPv4{
				TOS: l.TOS, ID: l.ID, DF: l.DF, Reserved: l.Reserved, TTL: l.TTL, Protocol: l.Protocol, Src: l.Src, Dst: l.Dst, TotalLen: l.Length,
			}
		case *dissect.IPv6:
			src, dst = netip.AddrFrom16(l.Src), netip.AddrFrom16(l.Dst)
			f.V6 = true
			f.IPv6 = wire.IPv6{
				TrafficClass: l.TrafficClass, FlowLabel: l.FlowLabel, HopLimit: l.HopLimit, NextHeader: l.NextHeader, Src: l.Src, Dst: l.Dst, PayloadLen: l.Length,
			}
		case *dissect.UDP:
			f.UDP = wire.UDP{SrcPort: l.SrcPort, DstPort: l.DstPort, Checksum: l.Checksum, Length: l.Length}
		default:
			if err := addTransport(f, l); err != nil {
				return nil, err
			}
		}
	}
	if src != f.SrcAddr() {
		return nil, fmt.Errorf("SrcAddr() = %v, want %v", f.SrcAddr(), src)
	}
	if dst != f.DstAddr() {
		return nil, fmt.Errorf("DstAddr() = %v, want %v", f.DstAddr(), dst)
	}
	return f, nil
}

// addTransport sets the fields of f for l, a layer of package softrnic/wire/dissect. It fails for
// any other layer.
func addTransport(f *wire.Frame, l gopacket.Layer) error {
	switch l := l.(type) {
	case *dissect.BTH:
		f.BTH = wire.BTH{
			Opcode: wire.Opcode(l.Opcode), Solicited: l.SolicitedEvent, MigReq: l.MigReq, Pad: l.PadCount, Version: l.TVer,
			PKey: l.PKey, FECN: l.FECN, BECN: l.BECN, Reserved6: l.Reserved6, DestQP: wire.QPN(l.DestQP),
			AckReq: l.AckReq, Reserved7: l.Reserved7, PSN: wire.PSN(l.PSN),
		}
	case *dissect.DETH:
		f.DETH = wire.DETH{QKey: l.QKey, Reserved: l.Reserved, SrcQP: wire.QPN(l.SrcQP)}
	case *dissect.XRCETH:
		f.XRCETH = wire.XRCETH{Reserved: l.Reserved, SRQN: l.SRQN}
	case *dissect.FETH:
		f.FETH = wire.FETH{Reserved: l.Reserved, Level: l.Selectivity, Placement: l.Placement}
	case *dissect.RETH:
		f.RETH = wire.RETH{VA: l.VA, RKey: l.RKey, Length: l.DMALength}
	case *dissect.AtomicETH:
		f.AtomicETH = wire.AtomicETH{VA: l.VA, RKey: l.RKey, SwapOrAdd: l.SwapOrAdd, Compare: l.Compare}
	case *dissect.AtomicMasks:
		f.Masks = wire.AtomicMasks{Swap: l.Swap, CompareOrBoundary: l.CompareOrBoundary}
	case *dissect.AETH:
		f.AETH = wire.AETH{Syndrome: wire.Syndrome(l.Syndrome), MSN: l.MSN}
	case *dissect.AtomicAckETH:
		f.AtomicAck = l.Original
	case *dissect.ImmDt:
		f.ImmDt = l.Immediate
	case *dissect.IETH:
		f.IETH = l.RKey
	case *dissect.CNP:
		f.CNP = l.Reserved
	case *dissect.Payload:
		f.Payload = l.Data
	case *dissect.ICRC:
		f.ICRC = l.Value
	default:
		return fmt.Errorf("unexpected layer %v", l.LayerType())
	}
	return nil
}
