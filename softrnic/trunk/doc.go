// Package trunk is the protocol of a trunk whose two switches are on different machines: it carries
// Ethernet frames in UDP datagrams. It is pure: an End is handed the time, datagrams and frames, and
// makes datagrams and frames. Package packetio/trunkport has its socket.
//
// A datagram has a header of 16 bytes, then ciphertext, and a tag of 16 bytes (AES-128-GCM; the header
// is authenticated, the counter is in the nonce):
//
//	|     0      |   1   |   2, 3  |  4 to 11  |   12   |   13   |   14, 15   |
//	| version,   | epoch |  rack   |  counter  | index  | count  | first      |
//	| kind       |       |         |           |        |        |            |
//
// Version and kind have four bits each. Epoch is the number that the receiver has given the key. Rack
// is a number made from the rack's name and secret. Counter counts the datagrams of a key from 1.
// Numbers are in network byte order.
//
// The frames of one send are a train (train.go): records, each an offload header and a frame or
// super-frame, one behind the other, cut into pieces of equal length that fill the path MTU, so that
// the kernel can cut them (UDP_SEGMENT). Index and count say which piece a datagram has, and first where
// in it the first record begins that begins there. So a lost piece costs only the packets that have bytes in
// it, and those whose headers it had.
//
// Keys (keys.go) come from X25519 with a key pair made for each handshake, and from the secret of the
// rack, which only its machines know. A hello (hello.go) has the sender's public key and echoes the
// peer's; an echo of one's own key proves that the hello is no repetition. A key is replaced when a
// switch has restarted, and before its counter is used up.
//
// Every Interval an end sends a probe (probe.go) with times, from which the other computes the round
// trip and the difference of their clocks. An end that has heard nothing for Silence takes the trunk as
// down. Padded probes find the path MTU (mtu.go).
package trunk
