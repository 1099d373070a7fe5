// Package dissect has the layers of RoCEv2 for gopacket: Ethernet with a VLAN tag, IPv4, IPv6, UDP, BTH,
// the extended headers, payload and ICRC. Package softrnic/wire/layers registers those behind UDP with
// gopacket's own layers. This package does without these: their tables take 6 MB of each process that
// imports them.
//
// It shares no code with package wire: it implements the specifications a second time. So a test that
// compares both on the same bytes can find mistakes. It is made for tools and tests; the data path uses
// package wire.
package dissect
