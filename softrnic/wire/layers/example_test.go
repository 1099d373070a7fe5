package layers_test

import (
	"fmt"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	roce "github.com/rdmalab/rdmalab/softrnic/wire/layers"
)

// After an import of the package, gopacket decodes RoCEv2 behind UDP port 4791.
func Example() {
	frame := wire.Frame{
		IPv4: wire.IPv4{TTL: 64, Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2}},
		Packet: wire.Packet{
			BTH:  wire.BTH{Opcode: wire.RCReadRequest, DestQP: 0x11, PSN: 7, AckReq: true},
			RETH: wire.RETH{VA: 0x1000, RKey: 5, Length: 64},
		},
	}
	p := gopacket.NewPacket(frame.AppendTo(nil), layers.LayerTypeEthernet, gopacket.Default)
	for _, l := range p.Layers() {
		fmt.Println(l.LayerType())
	}
	reth := p.Layer(roce.LayerTypeRETH).(*roce.RETH)
	fmt.Printf("READ of %d bytes at %#x\n", reth.DMALength, reth.VA)
	// Output:
	// Ethernet
	// IPv4
	// UDP
	// BTH
	// RETH
	// ICRC
	// READ of 64 bytes at 0x1000
}
