// Package memlink is a link of shared memory between two processes of one machine: the daemon of a
// host and the switch. A Port is a packetio.Port like that of package afpacket, without the kernel
// in the path: the sender copies a frame into a ring, the receiver copies it out. Super-frames,
// limits and drops are those of a link of packet sockets: the receiver counts frames that are
// dropped because the ring is full, the sender those that are longer than the MTU.
//
// The switch listens (Listen) and makes the memory of each link, a sealed memfd; the daemon of a
// host connects (Connect) and gets the memory through the socket. Each end makes a socket pair for
// each link, its bell, and passes the half that rings it to the other end. While the connection
// lasts, the link is attached. When one process ends, the other one sees the end of the connection.
// Then it drops the frames that it sends, until it is attached to the next incarnation.
//
// Each side trusts only the positions and offsets in its own memory. It reads a word of the other
// side once and checks it, and it copies a frame before it examines it. An impossible position ends
// the link, and a new one is made.
//
// Before a reader sleeps, it sets a word of the ring and then checks the ring once more. A writer
// publishes its frames and then reads that word. Package ipc/ring explains why the reader sees the
// frames or the writer sees the word. So no system call is made while the reader is awake.
package memlink
