// Package layers teaches RoCEv2 to gopacket. A program that imports it gets BTH, the extended
// headers, payload and ICRC as gopacket layers behind UDP port 4791:
//
//	import _ "github.com/rdmalab/rdmalab/softrnic/wire/layers"
//
// It is a second opinion on package wire and shares no code with it: the headers are decoded
// independently from the InfiniBand specification, so that a test which holds both against the same
// bytes means something. It is made for tools and tests. The data path uses package wire.
//
// Decoding is by gopacket.NewPacket. A DecodingLayerParser cannot follow RoCEv2, because what
// stands behind an extended header depends on the opcode in the BTH and not on that header.
//
// Serialize writes packets: beside what gopacket.SerializeLayers does, it sets the pad and the
// ICRC, which depend on more than one layer.
package layers
