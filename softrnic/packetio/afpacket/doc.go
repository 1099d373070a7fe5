// Package afpacket is a packetio.Port on a network interface, by an AF_PACKET socket: a TPACKET_V2
// receive ring, sendmmsg that bypasses the queueing discipline, and a waiter that spins and then
// blocks.
//
// The kernel's own stack shares the interface. In mode Host the port receives RoCEv2 (UDP 4791) and
// keeps the kernel from answering it; everything else stays with the kernel. In mode Switch the
// port receives every frame and the kernel gets none.
//
// The port undoes or passes on what a veth does to frames: it restores a VLAN tag that the kernel
// has removed; it passes unfinished checksums and TCP super-frames on in the fields of
// packetio.Frame; it does not receive its own transmissions; frames longer than a ring slot come
// through the socket's queue, in order.
//
// Received bytes are in memory outside the Go heap. It is never unmapped, so that a frame used too
// late reads other bytes or zeros and does not fault; Close returns the pages to the kernel.
package afpacket
