// Package pipeline is a switch as a value: a learning layer-2 forwarder for all Ethernet, and for RoCEv2 a parser, a
// Program of match-action stages, and a deparser.
//
// A Switch is handed frames with their ingress port and the time, and appends frames with their egress port to a
// batch of its caller. It opens no socket and knows no clock; swordbox/switchd runs it on real ports, topo/sim in
// virtual time. One goroutine uses it at a time.
//
// What a frame meets, in order:
//
//	too short, or from a group address  dropped, counted
//	from the switch's own address       dropped, counted: never learnt
//	source address                      learnt, with ageing and a bound
//	ARP, ICMPv6 for the switch itself   answered out of its port, if it asks for the switch's address
//	not UDP port 4791                   forwarded by destination address, flooded if that is unknown or a group
//	UDP 4791 but no RoCEv2              counted as malformed, then forwarded: a switch judges no payload
//	RoCEv2                              counted in its flow, then the Program's verdict
//
// A frame that is only forwarded is not copied, not encoded again, and its ICRC is not touched. A super-frame
// (several packets in one, see packetio.Frame) is forwarded whole unless the Program asks for single packets.
package pipeline
