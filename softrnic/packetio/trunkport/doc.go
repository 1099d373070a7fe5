// Package trunkport is a packetio.Port whose link is a trunk to another machine (package trunk). Its
// datagrams go by a carrier:
//
//   - UDP (udp.go), the default: a socket that is connected to the peer. A train goes out in one system
//     call that the kernel cuts into datagrams (UDP_SEGMENT), and datagrams that have come one behind the
//     other arrive as one (UDP_GRO). IP fragments are never made.
//   - TCP (tcp.go), for networks that let no UDP pass: a connection, in which each datagram follows its
//     length. What UDP loses, TCP repeats, so a loss becomes a delay of all that is behind it.
//
// The datagrams are the same, sealed by the trunk, so a carrier sees only ciphertext and adds no
// encryption.
//
// A Port belongs to the loop that calls Recv, Send and Tick; Tick sends what the trunk needs beside
// frames. A waiter of package afpacket waits for it as for any Source.
package trunkport
