// Package conntrack tracks the reliable connections that cross a switch: which queue pairs of which
// hosts are connected, which PSN each responder expects next, and the path MTU. It learns
// connections from the datagrams of the connection manager. If applications exchange queue pairs in
// another way, it learns the connections from the packets themselves.
//
// Contract. A Table is used by one goroutine at a time. The caller passes every RoCEv2 packet with
// its ingress port and the time to Packet. Packet returns the flow of the packet, and what the
// packet is to the responder: new, ahead (behind a gap), or a duplicate. The table changes no
// packet and drops none. The caller calls Flow.Advance for each New request that it sends on; a
// request for which it does not do so counts as lost.
//
// A flow is one direction of a connection: the requests of one end, and the responses to them. A
// connection is two flows, each the other's Peer. The key of a flow consists of fields of its
// requests: source address, destination address, destination queue pair. The UDP source port is not
// part of the key, because NICs change it.
//
// Packets cannot make a table grow beyond its bounds, or give a flow another peer. To make room for
// a flow, the table evicts only flows without a peer, and flows of ended connections. Stats counts
// the packets that it refuses.
//
//	table.go      Packet: the checks that each packet passes
//	request.go    class and span of a request; response.go: which requests a response answers
//	sequence.go   PSNs of a flow, and whether the expected one is known
//	state.go      states of a flow; lifecycle.go: creation, pairing, quarantine, eviction
//	learner.go    pairing by packets; learning.go: the evidence about one flow
//	datagram.go   messages of the connection manager; setups.go: the handshakes seen
//	hosts.go      which address is behind which port
//	burst.go      super-frames: several packets at once
package conntrack
