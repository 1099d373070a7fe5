// Package layers adds RoCEv2 to gopacket. A program that imports it gets BTH, the extended headers,
// payload and ICRC as gopacket layers behind UDP port 4791:
//
//	import _ "github.com/rdmalab/rdmalab/softrnic/wire/layers"
//
// It is independent of package wire and shares no code with it: the headers are decoded from the
// InfiniBand specification once more, so that a test that compares both on the same bytes can find
// mistakes. It is made for tools and tests. The data path uses package wire.
//
// Decode with gopacket.NewPacket. A DecodingLayerParser cannot follow RoCEv2, because what is
// behind an extended header depends on the opcode in the BTH and not on that header.
package layers
