// Package conntrack knows the reliable connections that cross a switch: who talks to whom over which queue pairs, which
// PSN the responder expects next, and what the path MTU is. It learns connections from the datagrams of the connection
// manager, and where queue pairs were exchanged out of band, from the packets themselves.
//
// Contract. A Table is a value that one goroutine uses at a time. It is handed every RoCEv2 packet with its ingress port
// and the time (Packet), and says which row the packet belongs to and what it is to a responder: new, ahead of a gap, or
// a duplicate. It changes no packet and drops none. The caller reports a request that it sent on by Row.Advance, if
// it was New; so a request that it refuses does not count as received.
//
// A row is half of a connection: the requests of one end towards the other, and the responses that come back. A
// connection is two rows, each the other's Peer. The key of a row is what a request carries: source address, destination
// address, destination queue pair. The UDP source port is not part of it, for NICs change it.
//
// Nothing that comes from the wire makes a table grow beyond its bounds, moves a row to another peer, or evicts a row
// whose two ends are known; what was refused is counted (Stats).
package conntrack
