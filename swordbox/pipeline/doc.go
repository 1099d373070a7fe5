// Package pipeline is a switch as a value: a learning layer-2 forwarder for all Ethernet, and for
// RoCEv2 a parser, a Program of match-action stages, and a deparser.
//
// The caller passes each frame with its ingress port and the time to a Switch. The Switch appends
// the frames to send, with their egress ports, to a batch of the caller. It opens no socket and
// reads no clock; topo/switchd runs it on real ports, sim/simrack in virtual time. One
// goroutine uses it at a time.
//
// The steps for a frame, in order:
//
//	too short, or from a group address  dropped, counted
//	from the switch's own address       dropped, counted: never learnt
//	source address                      learnt, with ageing and a bound
//	a port that the program has marked  the Program may take the frame, and resume it later (Ingresser)
//	a report of IGMP or MLD             read, sent to routers only
//	ARP, ICMPv6 for the switch itself   answered out of the ingress port
//	not UDP port 4791                   forwarded by destination; a multicast group to its members; flooded if unknown
//	UDP 4791 but not RoCEv2             counted as malformed, then forwarded unchanged
//	RoCEv2                              counted by addresses and queue pair, then the Program
//
// A frame that is only forwarded is not copied and not encoded again, and its ICRC is not changed.
// A super-frame (several packets in one, see packetio.Frame) is forwarded as one unless the Program
// asks for single packets. A RoCEv2 packet may also pass without being encoded (Switch.Open); then its steps
// are the same, and it is encoded as soon as something needs its bytes.
package pipeline
