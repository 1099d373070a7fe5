// Package wire is the RoCEv2 codec: Ethernet with an optional 802.1Q tag, IPv4 or IPv6, UDP, the
// base transport header and every extended header of the RC, UC and UD services and of congestion
// notification, pad and ICRC.
//
// ParseFrame and Frame.AppendTo are the way in and out; each header stands in a file of its own
// with the three functions Parse, AppendTo and Len. The opcode table (optable.go) is data, and says
// which headers an opcode has.
//
// Contract: parsing never panics, allocates nothing unless it fails, and leaves the payload where
// it is. A frame that is no RoCEv2 at all gives ErrNotRoCE, a broken RoCEv2 frame gives a
// *FormatError. Parse ignores what the specification tells receivers to ignore, and reports it if a
// field exists for it; AppendTo writes reserved bits from those fields, so that a frame which was
// parsed, changed and written keeps everything that was not changed. Parsing does not check the
// ICRC: that is CheckICRC, because a switch does not need it and a NIC counts it apart.
//
// The package holds no state and does no I/O. It does not know queue pairs: whether a packet makes
// sense in a connection is for package transport.
//
// Rules are cited by sections of the InfiniBand Architecture Specification, volume 1 (IBTA 9.2),
// and of its RoCEv2 annex (A17.9.3); e2e/layering says how, and that each has its test.
package wire
