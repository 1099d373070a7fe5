package layers_test

import (
	"fmt"
	"net"

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

// Serialize writes a packet with pad, lengths and ICRC.
func ExampleSerialize() {
	b := gopacket.NewSerializeBuffer()
	err := roce.Serialize(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.IPv4{
			Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP,
			SrcIP: net.IPv4(10, 0, 0, 1), DstIP: net.IPv4(10, 0, 0, 2),
		},
		&layers.UDP{SrcPort: 0xd221, DstPort: roce.Port},
		&roce.BTH{Opcode: 0x04, PKey: 0xffff, DestQP: 0x11, PSN: 7, AckReq: true},
		&roce.Payload{Data: []byte("hello")},
		&roce.ICRC{},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := gopacket.NewPacket(b.Bytes(), layers.LayerTypeIPv4, gopacket.Default)
	sum, err := roce.Sum(p)
	fmt.Println(len(b.Bytes()), sum == p.Layer(roce.LayerTypeICRC).(*roce.ICRC).Value, err)
	// Output: 52 true <nil>
}
