// Package proto has the messages between an application and the daemon of its NIC on the control
// socket, for everything but posting and polling. It has no behaviour but encoding.
//
// The socket is SOCK_SEQPACKET: one message is one packet of at most MaxMessage bytes of JSON. The
// application sends a Request and gets one Reply with the same ID, not necessarily in the order of
// the requests; the first request is OpHello, with Version. Replies that make memory known carry
// its file descriptors. The daemon sends a Reply with ID 0 for each asynchronous event. It takes no
// file descriptors from applications.
//
// Handles are numbers that the daemon gave to this connection; they mean nothing on another one.
package proto
