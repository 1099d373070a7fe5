// Package afpacket is a packetio.Port on a network interface, by an AF_PACKET socket: a TPACKET_V2
// receive ring, sendmmsg that bypasses the queueing discipline, and a waiter that spins and then
// blocks.
//
// The kernel's own stack shares the interface. In mode Host the port receives RoCEv2 (UDP 4791) and
// keeps the kernel from answering it; everything else stays with the kernel. In mode Switch the
// port receives every frame, and the kernel gets none if it can run the port's tc program.
//
// The port hides how a veth and the kernel change frames. It restores a VLAN tag that the kernel
// has removed. It passes on unfinished checksums and TCP super-frames in the fields of
// packetio.Frame. It does not receive the frames that it sends. Frames that are longer than a ring
// slot are received through the socket's queue, in order.
//
// Received bytes are in memory outside the Go heap. It is never unmapped: code that uses a frame
// after the next Recv or after Close reads other bytes or zeros, but does not fault. Close returns
// the pages to the kernel.
package afpacket
