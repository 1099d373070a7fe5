package dissect

import (
	"github.com/google/gopacket"
)

// Port is the UDP destination port of RoCEv2.
const Port = 4791

// Layer types. gopacket leaves the numbers from 2000 on to its users; these start at the number of
// the UDP port.
var (
	LayerTypeBTH          = register(4791, "BTH", gopacket.DecodeFunc(decodeBTH))
	LayerTypeDETH         = register(4792, "DETH", headers{newDETH})
	LayerTypeRETH         = register(4793, "RETH", headers{newRETH})
	LayerTypeAtomicETH    = register(4794, "AtomicETH", headers{newAtomicETH})
	LayerTypeAETH         = register(4795, "AETH", headers{newAETH})
	LayerTypeAtomicAckETH = register(4796, "AtomicAckETH", headers{newAtomicAckETH})
	LayerTypeImmDt        = register(4797, "ImmDt", headers{newImmDt})
	LayerTypeIETH         = register(4798, "IETH", headers{newIETH})
	LayerTypeCNP          = register(4799, "CNP", headers{newCNP})
	LayerTypePayload      = register(4800, "RoCEPayload", tail{})
	LayerTypeICRC         = register(4801, "ICRC", tail{})
	LayerTypeAtomicMasks  = register(4802, "AtomicMasks", headers{newAtomicMasks})
	LayerTypeFETH         = register(4803, "FETH", headers{newFETH})
	LayerTypeXRCETH       = register(4804, "XRCETH", headers{newXRCETH})
)

func register(number int, name string, d gopacket.Decoder) gopacket.LayerType {
	return gopacket.RegisterLayerType(number, gopacket.LayerTypeMetadata{Name: name, Decoder: d})
}
