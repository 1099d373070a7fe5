// Package transform changes RoCEv2 packets for a switch that moves a request from one connection to
// another, and forwards the response in the other direction. Its functions work on a wire.Frame and
// keep no state. The caller decides what becomes of which packet, and with which PSN.
//
//	request    CAS, FAA     → WRITE of 8 bytes, or WRITE of no bytes    ToWrite, ToEmptyWrite
//	           any packet   → the same on another connection            Request
//	response   any packet   → the same for another requester            Response
//	made by the switch      → ACK, ATOMIC ACK, NAK, WRITE of no bytes   Path.ACK and so on
//
// The functions do not compute lengths, pad, IPv4 checksum and ICRC of the result, because
// wire.Frame.AppendTo does that. They clear the UDP checksum, as RoCEv2 allows (IBTA A17.3.1),
// because the old one is wrong.
//
// Byte order is converted only in this package. The operands of an atomic and its response are
// numbers. They are sent in network byte order, and the responder applies them to a word in the
// byte order of its memory. The payload of a WRITE is bytes. The package assumes that the memory is
// little-endian: ToWrite stores a number as its eight bytes, least significant first, and PieceOf
// reads one back.
package transform
