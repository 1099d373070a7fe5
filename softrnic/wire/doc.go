// Package wire is the RoCEv2 codec: Ethernet with an optional 802.1Q tag, IPv4 or IPv6, UDP, the
// base transport header and every extended header of the RC, UC and UD services and of congestion
// notification, pad and ICRC.
//
// ParseFrame and Frame.AppendTo decode and encode frames; each header is in a file of its own, with
// the methods Parse and AppendTo. The opcode table (optable.go) is data, and says
// which headers an opcode has.
//
// Contract: parsing never panics, and leaves the payload where it is. It allocates nothing unless
// it fails, except for the records of a Membership. For a frame that is not RoCEv2 the error is
// ErrNotRoCE, for a malformed RoCEv2 frame it is a *FormatError. Parse does not refuse reserved
// bits that receivers must ignore; it stores them if there is a field for them. AppendTo writes
// reserved bits from those fields, so that a frame that is parsed, changed and written keeps all
// other bits. Parsing does not check the ICRC, because a switch does not need that and a NIC counts
// such packets separately; CheckICRC does.
//
// The package holds no state and does no I/O. It does not know queue pairs: package transport
// decides whether a packet is valid in a connection.
//
// Rules are cited by sections of the InfiniBand Architecture Specification, volume 1 (IBTA 9.2),
// and of its RoCEv2 annex (A17.9.3); the tests of e2e/layering check their form, and that each rule
// has a test.
package wire
