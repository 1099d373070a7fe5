// Package memlink is a link of shared memory between two processes of one machine: the daemon of a
// host and the switch. A Port is a packetio.Port like that of package afpacket, without the kernel
// in the path: the sender copies a frame into a ring, the receiver copies it out. Super-frames,
// limits and drops are those of a link of packet sockets: the receiver counts frames that a full
// ring drops, the sender those that are longer than the MTU.
//
// The switch listens (Listen) and makes the memory of each link, a sealed memfd; the daemon of a
// host connects (Connect) and gets it through the socket. Each end makes a socket pair for each
// link, its bell, and passes the half that rings it to the other end. While the connection lasts,
// the link is attached. When one process ends, the other sees the connection end, drops what it
// sends, and attaches again to the next incarnation.
//
// Each side trusts only its own memory: its position, and where it has put the frames in flight. A
// word of the other side is read once and checked; a frame is copied before it is examined. An
// impossible position ends the link, and a new one is made.
//
// Before a reader sleeps, it says so in a word of the ring and then checks the ring once more; a
// writer publishes its frames and then reads that word (package ipc/ring says why one of them sees
// the other). So no system call is made while the reader is awake.
package memlink
