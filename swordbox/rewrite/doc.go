// Package rewrite turns RoCEv2 packets into others: the transformations that a switch makes when it moves a request
// from one connection to another and carries the answer back. They are pure functions on a wire.Frame; which packet
// to turn into which, and with what numbers, is the caller's to know.
//
//	request    CAS, FAA     → WRITE of 8 bytes, or WRITE of none        ToWrite, ToEmptyWrite
//	           any single   → the same on another connection            Request
//	answer     any          → the same for another requester            Response
//	from nothing            → ACK, ATOMIC ACK, NAK, empty WRITE         Path.ACK and so on
//
// wire.Frame.AppendTo computes lengths, pad, IPv4 checksum and ICRC of the result, so nothing here does. The UDP
// checksum is cleared, as RoCEv2 allows (IBTA A17.3.1), because the old one is wrong.
//
// Byte order is converted here and nowhere else. The operands of an atomic and its answer are numbers, sent in
// network order and applied by the responder to a word in the order of its memory; the payload of a WRITE is bytes.
// The memory is taken to be little-endian: ToWrite stores a number as its eight bytes, least significant first, and
// PieceOf reads one back.
package rewrite
