// Package proto has the messages on the control socket between an application and the daemon of its
// NIC. They carry everything but posts and polls. The package only encodes and decodes.
//
// The socket is SOCK_SEQPACKET: one message is one packet of at most MaxMessage bytes of JSON. The
// application sends a Request and gets one Reply with the same ID, not necessarily in the order of
// the requests; the first request is OpHello, with Version. Replies that give access to memory
// carry its file descriptors. The daemon sends a Reply with ID 0 for each asynchronous event. It
// accepts no file descriptors from applications.
//
// Handles are numbers that the daemon gave to this connection; they are invalid on another one.
package proto
