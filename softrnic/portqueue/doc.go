// Package portqueue is the egress of ports: of a NIC (one port), of a switch (all its ports, which
// share a packet buffer), and of both in the simulator. Each port has a rate and up to eight
// priorities. A frame's DSCP decides its priority. Strict priorities leave first, the others by
// weights (deficit round robin, Shreedhar and Varghese, SIGCOMM 1995). A priority may mark packets by
// the length of its queue (RED with ECN: RFC 3168, DCQCN section 3.1), and may be lossless: then the
// port obeys the pause frames of its peer (PFC, IEEE 802.1Qbb), and sends such frames when the bytes
// that have come in at a port fill their share of the buffer.
//
// The machine is pure: the caller passes the time, and calls Due at Deadline. It copies the frames
// that it queues, in memory that it uses again, and allocates nothing in a steady state. RED draws its
// random numbers from a seed and the index of the packet in its queue, not from the time.
//
// Bytes are those of frames from the destination address on, without FCS; Config.Overhead is added to
// each frame where a rate turns bytes to time.
package portqueue
