// Package layers adds RoCEv2 to gopacket. A program that imports it gets BTH, the extended headers,
// payload and ICRC as gopacket layers behind UDP port 4791:
//
//	import _ "github.com/rdmalab/rdmalab/softrnic/wire/layers"
//
// The layers are those of package softrnic/wire/dissect, which shares no code with package wire.
//
// Use gopacket.NewPacket for decoding. A DecodingLayerParser cannot decode RoCEv2, because the
// layer behind an extended header depends on the opcode in the BTH, not on that header.
package layers
