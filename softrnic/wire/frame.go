package wire

// EtherType values that the codec knows.
const (
	EtherTypeIPv4 uint16 = 0x0800
	EtherTypeARP  uint16 = 0x0806
	EtherTypeVLAN uint16 = 0x8100
	EtherTypeIPv6 uint16 = 0x86dd
)

// UDPPort is the destination port of RoCEv2 (A17.3.1).
const UDPPort = 4791

// MAC is an Ethernet address.
type MAC [6]byte

// Ethernet is the link header with an optional 802.1Q tag.
type Ethernet struct {
	Dst, Src MAC
	// Tagged says that a VLAN tag is present; TCI is its priority, DEI and VLAN id.
	Tagged bool
	TCI    uint16
	// Type is the EtherType of what follows (the inner one of a tagged frame).
	Type uint16
}

// IPv4 is a header without options. Length and checksum are computed by AppendTo and checked by Parse.
type IPv4 struct {
	TOS      uint8 // DSCP and ECN
	ID       uint16
	DF       bool // don't fragment
	TTL      uint8
	Protocol uint8
	Src, Dst [4]byte
}

// IPv6 is a fixed header. The payload length is computed by AppendTo and checked by Parse.
type IPv6 struct {
	TrafficClass uint8 // DSCP and ECN
	FlowLabel    uint32
	NextHeader   uint8
	HopLimit     uint8
	Src, Dst     [16]byte
}

// UDP is the header of a RoCEv2 datagram. The length is computed by AppendTo.
type UDP struct {
	SrcPort, DstPort uint16
	// Checksum is 0 on what we send; a partial one may arrive over veth. The ICRC masks it.
	Checksum uint16
}

// BTH is the base transport header (IBTA vol. 1, 9.2).
type BTH struct {
	Opcode    Opcode
	Solicited bool
	MigReq    bool
	// Pad is the number of pad bytes, set by Parse. AppendTo computes it from the payload.
	Pad     uint8
	Version uint8 // TVer, 0
	PKey    uint16
	FECN    bool
	BECN    bool
	// Reserved6 are the six reserved bits beside FECN and BECN; carried so that a rewrite changes nothing.
	Reserved6 uint8
	DestQP    QPN
	AckReq    bool
	Reserved7 uint8
	PSN       PSN
}

// RETH is the RDMA extended transport header of WRITE and READ requests.
type RETH struct {
	VA     uint64
	RKey   uint32
	Length uint32 // bytes
}

// AtomicETH is the header of CMP_SWAP and FETCH_ADD requests.
type AtomicETH struct {
	VA        uint64
	RKey      uint32
	SwapOrAdd uint64
	Compare   uint64
}

// AETH is the header of acknowledgements.
type AETH struct {
	Syndrome Syndrome
	MSN      uint32 // 24 bits
}

// DETH is the header of datagrams.
type DETH struct {
	QKey     uint32
	Reserved uint8
	SrcQP    QPN
}

// Packet is the transport part of a RoCEv2 packet: BTH, the extended headers that its opcode has, payload.
// Fields of headers that the opcode does not have are ignored by AppendTo and zeroed by Parse.
type Packet struct {
	BTH       BTH
	RETH      RETH
	AtomicETH AtomicETH
	AETH      AETH
	DETH      DETH
	AtomicAck uint64 // AtomicAckETH: original value
	ImmDt     uint32 // immediate data, in host order of the number on the wire
	IETH      uint32 // rkey to invalidate
	// Payload is without pad. After Parse it points into the parsed bytes.
	Payload []byte
}

// Frame is a whole RoCEv2 frame.
type Frame struct {
	Eth Ethernet
	// V6 selects IPv6 over IPv4.
	V6   bool
	IPv4 IPv4
	IPv6 IPv6
	UDP  UDP
	Packet
	// ICRC is the invariant CRC found by Parse, as a number whose little-endian bytes are on the wire.
	ICRC uint32
}
