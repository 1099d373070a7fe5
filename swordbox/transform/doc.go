// Package transform changes RoCEv2 packets as a switch does that moves a request from one
// connection to another and forwards the response in the other direction. These are pure functions
// on a wire.Frame; the caller decides which packet becomes which, and with which PSN.
//
//	request    CAS, FAA     → WRITE of 8 bytes, or WRITE of none        ToWrite, ToEmptyWrite
//	           any single   → the same on another connection            Request
//	response   any          → the same for another requester            Response
//	made by the switch      → ACK, ATOMIC ACK, NAK, empty WRITE         Path.ACK and so on
//
// wire.Frame.AppendTo computes lengths, pad, IPv4 checksum and ICRC of the result, so the functions
// here do not. The UDP checksum is cleared, as RoCEv2 allows (IBTA A17.3.1), because the old one is
// wrong.
//
// Byte order is converted here only. The operands of an atomic and its response are numbers, sent
// in network byte order and applied by the responder to a word in the byte order of its memory; the
// payload of a WRITE is bytes. The memory is assumed to be little-endian: ToWrite stores a number
// as its eight bytes, least significant first, and PieceOf reads one back.
package transform
