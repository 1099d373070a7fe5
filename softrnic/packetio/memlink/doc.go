// Package memlink is a link of shared memory between two processes of one machine: the daemon of a
// host and the switch. A Port is a packetio.Port as that of package afpacket is, without the kernel
// in the path: the sender copies a frame into a ring, the receiver copies it out. Super-frames,
// bounds and drops are those of a link of packet sockets: a full ring drops at its receiver's
// expense, a frame beyond the MTU at its sender's.
//
// The switch listens (Listen) and makes the memory of each link, a sealed memfd; the daemon of a
// host connects (Connect) and gets it by the socket. Each end makes a socket pair for each link,
// its bell, and hands over the half that rings it. While the connection lasts, the link is
// attached. When one process ends, the other sees the connection end, drops what it sends, and
// attaches again to the next incarnation.
//
// Each side trusts only what it keeps in memory of its own: its position, and where it has put the
// frames in flight. A word of the other side is read once and checked; a frame is copied before it
// is looked at. A position that cannot be ends the link, and a new one is made.
//
// A reader that is about to sleep says so in a word of the ring and then looks once more; a writer
// publishes its frames and then reads that word (package ipc/ring says why one of them sees the
// other). So no system call is made while the reader is awake.
package memlink
