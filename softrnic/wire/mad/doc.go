// Package mad is the codec of the management datagrams (MADs) by which connections are made: the
// common MAD header, the bodies of the communication manager's messages (REQ, MRA, REJ, REP, RTU,
// DREQ, DREP, SIDR_REQ, SIDR_REP), and the header that RDMA-CM puts in front of the private data of
// a request.
//
// Every message has Parse and AppendTo, as the headers of package wire have. A body is always
// bodyLen bytes and a whole datagram Size; private data fill the rest of a body and carry no length
// on the wire, so a receiver sees the sender's bytes, and then zeros. Parse never panics and
// accepts every value of every field; package cm decides whether a value makes sense. Reserved bits
// are written as zero and ignored when read.
package mad
