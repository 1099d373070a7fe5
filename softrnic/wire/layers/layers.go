package layers

import (
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/rdmalab/rdmalab/softrnic/wire/dissect"
)

// Port is the UDP destination port of RoCEv2.
const Port layers.UDPPort = dissect.Port

// Layer types. gopacket leaves the numbers from 2000 on to its users; these start at the number of
// the UDP port.
var (
	LayerTypeBTH          = dissect.LayerTypeBTH
	LayerTypeDETH         = dissect.LayerTypeDETH
	LayerTypeRETH         = dissect.LayerTypeRETH
	LayerTypeAtomicETH    = dissect.LayerTypeAtomicETH
	LayerTypeAETH         = dissect.LayerTypeAETH
	LayerTypeAtomicAckETH = dissect.LayerTypeAtomicAckETH
	LayerTypeImmDt        = dissect.LayerTypeImmDt
	LayerTypeIETH         = dissect.LayerTypeIETH
	LayerTypeCNP          = dissect.LayerTypeCNP
	LayerTypePayload      = dissect.LayerTypePayload
	LayerTypeICRC         = dissect.LayerTypeICRC
	LayerTypeAtomicMasks  = dissect.LayerTypeAtomicMasks
	LayerTypeFETH         = dissect.LayerTypeFETH
	LayerTypeXRCETH       = dissect.LayerTypeXRCETH
)

// The layers.
type (
	BTH          = dissect.BTH
	DETH         = dissect.DETH
	XRCETH       = dissect.XRCETH
	FETH         = dissect.FETH
	RETH         = dissect.RETH
	AtomicETH    = dissect.AtomicETH
	AtomicMasks  = dissect.AtomicMasks
	AETH         = dissect.AETH
	AtomicAckETH = dissect.AtomicAckETH
	ImmDt        = dissect.ImmDt
	IETH         = dissect.IETH
	CNP          = dissect.CNP
	Payload      = dissect.Payload
	ICRC         = dissect.ICRC
)

// ErrNoPacket means that the layers of a packet are not IP, UDP, BTH and so on up to an ICRC.
var ErrNoPacket = dissect.ErrNoPacket

// Sum computes the ICRC that p should have.
func Sum(p gopacket.Packet) (uint32, error) { return dissect.Sum(p) }

// init registers RoCEv2 with gopacket for its UDP port; the package has no other state.
func init() { layers.RegisterUDPPortLayerType(Port, LayerTypeBTH) }
