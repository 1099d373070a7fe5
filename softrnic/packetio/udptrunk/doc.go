// Package udptrunk is a packetio.Port whose link is a trunk to another machine (package trunk): a UDP
// socket that is connected to the peer. A train goes out in one system call that the kernel cuts into
// datagrams (UDP_SEGMENT), and datagrams that have come one behind the other arrive as one (UDP_GRO).
// IP fragments are never made.
//
// A Port belongs to the loop that calls Recv, Send and Tick; Tick sends what the trunk needs beside
// frames. A waiter of package afpacket waits for it as for any Source.
package udptrunk
