package wire

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"
)

// This file has the messages by which hosts and routers manage multicast groups. They are IGMP
// versions 1 to 3 (RFC 1112, 2236, 3376) over IPv4, with protocol 2 and the option Router Alert.
// Over IPv6 they are MLD versions 1 and 2 (RFC 2710, 3810), as ICMPv6 behind a hop-by-hop header
// with Router Alert:
//
//	IGMP, version 2                       query and report of MLD, version 1
//	+------+------+-----------+           +------+------+-----------+
//	| type | time | checksum  |           | type |   0  | checksum  |
//	+------+------+-----------+           +------+------+-----------+
//	|   group (4 bytes)       |           | time (ms)   |     0     |
//	+-------------------------+           +-------------------------+
//	                                      |   group (16 bytes)      |
//	                                      +-------------------------+
//
// Queries of the newer versions have 4 more bytes, and lists of sources. Reports of the newer
// versions are lists of records, each with its type, number of sources and group.

// Membership is a message of IGMP or MLD: a router or switch asks which groups a host receives, or
// a host reports them.
type Membership struct {
	// Query: the message is a query for Group, or for all groups if Group is the unspecified
	// address. Otherwise it is a report of Records.
	Query bool
	// Old: the format is that of IGMP 1 or 2, or MLD 1. Such a report has exactly one record.
	Old         bool
	Source      netip.Addr
	Group       netip.Addr
	MaxResponse time.Duration // time within which hosts answer a query
	Records     []GroupRecord
}

// GroupRecord is the part of a report that concerns one group.
type GroupRecord struct {
	Type    RecordType
	Sources int // number of sources in the record; set by Parse only
	Group   netip.Addr
}

// RecordType is the type of a record (RFC 3376, 4.2.12).
type RecordType uint8

// Types of records that this package writes. RecordIsExclude says that the host receives the group,
// RecordToExclude that it has begun to receive the group, and RecordToInclude that it no longer
// receives the group. The unexported types occur only in messages that Parse reads.
const (
	RecordIsExclude RecordType = 2
	RecordToInclude RecordType = 3
	RecordToExclude RecordType = 4

	recordIsInclude RecordType = 1
	recordAllow     RecordType = 5
)

// Joins reports whether the host receives the group from at least one source.
func (r *GroupRecord) Joins() bool {
	switch r.Type {
	case RecordIsExclude, RecordToExclude:
		return true
	case recordIsInclude, RecordToInclude, recordAllow:
		return r.Sources > 0
	}
	return false
}

// Leaves reports whether the host no longer receives the group from any source.
func (r *GroupRecord) Leaves() bool { return r.Type == RecordToInclude && r.Sources == 0 }

// ErrNotMembership means that a frame is not a message of IGMP or MLD.
var ErrNotMembership = errors.New("no message of IGMP or MLD")

// Types of messages.
const (
	igmpQuery, igmpReport1, igmpReport2, igmpLeave, igmpReport3 = 0x11, 0x12, 0x16, 0x17, 0x22
	mldQuery, mldReport1, mldDone, mldReport2                   = 130, 131, 132, 143
)

const (
	protocolIGMP   = 2
	protocolICMPv6 = 58
	hopByHop       = 0
	igmpOldLen     = 8
	igmpQueryLen   = 12
	mldOldLen      = 24
	mldQueryLen    = 28
	reportHeadLen  = 8
	recordHeadLen  = 4
	maxResponseV1  = 10 * time.Second // for IGMP 1, whose queries do not contain the time
	// MaxGroupRecords is the largest number of records of a report; Parse refuses more.
	MaxGroupRecords = 512
)

// Addresses to which messages go (RFC 3376, RFC 3810).
var (
	allHosts    = netip.AddrFrom4([4]byte{224, 0, 0, 1})
	allRouters  = netip.AddrFrom4([4]byte{224, 0, 0, 2})
	reports     = netip.AddrFrom4([4]byte{224, 0, 0, 22})
	allNodes6   = netip.IPv6LinkLocalAllNodes()
	allRouters6 = netip.IPv6LinkLocalAllRouters()
	reports6    = netip.AddrFrom16([16]byte{0xff, 2, 15: 0x16})
)

// MayBeMembership reports whether b is a message of IGMP, or has the hop-by-hop header that
// messages of MLD have. It is for callers that examine only the beginning of a frame.
func MayBeMembership(b []byte) bool {
	h, etherType := ipHeader(b)
	if len(h) < ipv4Len {
		return false
	}
	switch etherType {
	case EtherTypeIPv4:
		return h[9] == protocolIGMP
	case EtherTypeIPv6:
		return h[6] == hopByHop
	}
	return false
}

// Parse parses a frame. It fails with ErrNotMembership if the frame is damaged, or is no message of
// IGMP or MLD. It stores the records in the memory of m's earlier records, if there is room.
func (m *Membership) Parse(frame []byte) error {
	var eth Ethernet
	if eth.Parse(frame) != nil {
		return ErrNotMembership
	}
	*m = Membership{Records: m.Records[:0]}
	switch b := frame[eth.Len():]; eth.Type {
	case EtherTypeIPv4:
		return m.parseIGMP(b)
	case EtherTypeIPv6:
		return m.parseMLD(b)
	}
	return ErrNotMembership
}

// parseIGMP parses an IPv4 packet, perhaps with options. The TTL must be 1.
func (m *Membership) parseIGMP(b []byte) error {
	if len(b) < ipv4Len || b[0]>>4 != 4 || b[9] != protocolIGMP || b[8] != 1 {
		return ErrNotMembership
	}
	head, total := int(b[0]&0xf)*4, int(binary.BigEndian.Uint16(b[2:]))
	if head < ipv4Len || total < head+igmpOldLen || total > len(b) || checksum(b[:head]) != 0 {
		return ErrNotMembership
	}
	msg := b[head:total]
	if len(msg)%2 != 0 || checksum(msg) != 0 {
		return ErrNotMembership
	}
	m.Source = netip.AddrFrom4([4]byte(b[12:]))
	group := netip.AddrFrom4([4]byte(msg[4:]))
	switch msg[0] {
	case igmpQuery:
		if len(msg) > igmpOldLen && len(msg) < igmpQueryLen { // no version of IGMP has this length (RFC 3376, 7.1)
			return ErrNotMembership
		}
		m.Query, m.Group, m.Old = true, group, len(msg) < igmpQueryLen
		m.MaxResponse = time.Duration(msg[1]) * time.Second / 10
		if m.Old && msg[1] == 0 {
			m.MaxResponse = maxResponseV1
		} else if !m.Old {
			m.MaxResponse = time.Duration(decodeTime(uint32(msg[1]), 7, 4)) * time.Second / 10
		}
	case igmpReport1, igmpReport2:
		m.one(group, RecordIsExclude)
	case igmpLeave:
		m.one(group, RecordToInclude)
	case igmpReport3:
		return m.list(msg, 4)
	default:
		return ErrNotMembership
	}
	return m.check()
}

// parseMLD parses an IPv6 packet with a hop-by-hop header. The hop limit must be 1.
func (m *Membership) parseMLD(b []byte) error {
	var ip IPv6
	if ip.Parse(b) != nil || ip.NextHeader != hopByHop || ip.HopLimit != 1 {
		return ErrNotMembership
	}
	msg := b[ipv6Len : ipv6Len+int(ip.PayloadLen)]
	if len(msg) < 8 || msg[0] != protocolICMPv6 || len(msg) < 8+8*int(msg[1])+reportHeadLen {
		return ErrNotMembership
	}
	msg = msg[8+8*int(msg[1]):]
	if len(msg)%2 != 0 || ip.checksum(msg) != 0 {
		return ErrNotMembership
	}
	m.Source = netip.AddrFrom16(ip.Src)
	if msg[0] == mldReport2 {
		return m.list(msg, 16)
	}
	if len(msg) < mldOldLen {
		return ErrNotMembership
	}
	group := netip.AddrFrom16([16]byte(msg[8:]))
	switch msg[0] {
	case mldQuery:
		// RFC 3810, 8.1 and 5.1.14: no version of MLD has a query longer than mldOldLen and shorter
		// than mldQueryLen, and queries have a link-local source.
		if len(msg) > mldOldLen && len(msg) < mldQueryLen || !m.Source.IsLinkLocalUnicast() {
			return ErrNotMembership
		}
		code := uint32(binary.BigEndian.Uint16(msg[4:]))
		if m.Query, m.Group, m.Old = true, group, len(msg) < mldQueryLen; !m.Old {
			code = decodeTime(code, 15, 12)
		}
		m.MaxResponse = time.Duration(code) * time.Millisecond
	case mldReport1:
		m.one(group, RecordIsExclude)
	case mldDone:
		m.one(group, RecordToInclude)
	default:
		return ErrNotMembership
	}
	return m.check()
}

// decodeTime decodes a time code whose highest bit has the number `bit`. If this bit is set, the
// bits below it are an exponent of 3 bits and a mantissa of `mantissa` bits (RFC 3376, 4.1.1; RFC
// 3810, 5.1.3).
func decodeTime(code uint32, bit, mantissa int) uint32 {
	if code>>bit == 0 {
		return code
	}
	return (code&(1<<mantissa-1) | 1<<mantissa) << (code>>mantissa&7 + 3)
}

func (m *Membership) one(group netip.Addr, t RecordType) {
	m.Old = true
	m.Records = append(m.Records, GroupRecord{Type: t, Group: group})
}

// list parses the records of a report. The group and source addresses in them have n bytes each.
func (m *Membership) list(msg []byte, n int) error {
	count, b := int(binary.BigEndian.Uint16(msg[6:])), msg[reportHeadLen:]
	if count > MaxGroupRecords {
		return ErrNotMembership
	}
	for range count {
		if len(b) < recordHeadLen+n {
			return ErrNotMembership
		}
		sources := int(binary.BigEndian.Uint16(b[2:]))
		length := recordHeadLen + n + sources*n + 4*int(b[1])
		if len(b) < length {
			return ErrNotMembership
		}
		group, _ := netip.AddrFromSlice(b[recordHeadLen : recordHeadLen+n])
		m.Records = append(m.Records, GroupRecord{Type: RecordType(b[0]), Sources: sources, Group: group})
		b = b[length:]
	}
	return m.check()
}

// check checks the addresses: groups must be multicast addresses, except in a general query.
func (m *Membership) check() error {
	if m.Query && !m.Group.IsUnspecified() && !m.Group.IsMulticast() {
		return ErrNotMembership
	}
	for i := range m.Records {
		if !m.Records[i].Group.IsMulticast() {
			return ErrNotMembership
		}
	}
	return nil
}

func (m *Membership) Len() int {
	if m.Source.Is4() {
		return ethernetLen + ipv4Len + 4 + m.messageLen(4, igmpOldLen, igmpQueryLen)
	}
	return ethernetLen + ipv6Len + 8 + m.messageLen(16, mldOldLen, mldQueryLen)
}

func (m *Membership) messageLen(address, old, query int) int {
	switch {
	case m.Old:
		return old
	case m.Query:
		return query
	}
	return reportHeadLen + len(m.Records)*(recordHeadLen+address)
}

// AppendTo appends the whole frame; src is its source MAC address. A report with Old set (the older
// version of the protocol) must have exactly one record.
func (m *Membership) AppendTo(b []byte, src MAC) []byte {
	to := m.to()
	eth := Ethernet{Dst: GroupMAC(to), Src: src, Type: EtherTypeIPv4}
	if m.Source.Is4() {
		const routerAlert = 0x94040000
		b = eth.AppendTo(b)
		start := len(b)
		ip := IPv4{TTL: 1, DF: true, TOS: 0xc0, Protocol: protocolIGMP, Src: m.Source.As4(), Dst: to.As4()}
		b = ip.AppendTo(b, 4+m.messageLen(4, igmpOldLen, igmpQueryLen))
		b = binary.BigEndian.AppendUint32(b, routerAlert)
		head := b[start:]
		head[0], head[10], head[11] = 4<<4|6, 0, 0
		binary.BigEndian.PutUint16(head[10:], checksum(head))
		start = len(b)
		b = m.appendIGMP(b)
		binary.BigEndian.PutUint16(b[start+2:], checksum(b[start:]))
		return b
	}
	eth.Type = EtherTypeIPv6
	b = eth.AppendTo(b)
	ip := IPv6{NextHeader: hopByHop, HopLimit: 1, Src: m.Source.As16(), Dst: to.As16()}
	b = ip.AppendTo(b, 8+m.messageLen(16, mldOldLen, mldQueryLen))
	b = append(b, protocolICMPv6, 0, 5, 2, 0, 0, 1, 0) // Router Alert for MLD, and padding
	start := len(b)
	b = m.appendMLD(b)
	binary.BigEndian.PutUint16(b[start+2:], ip.checksum(b[start:]))
	return b
}

// to returns the address to which the message is sent.
func (m *Membership) to() netip.Addr {
	v4 := m.Source.Is4()
	pick := func(a, b netip.Addr) netip.Addr {
		if v4 {
			return a
		}
		return b
	}
	switch {
	case m.Query && m.Group.IsUnspecified():
		return pick(allHosts, allNodes6)
	case m.Query:
		return m.Group
	case !m.Old:
		return pick(reports, reports6)
	case m.Records[0].Type == RecordToInclude:
		return pick(allRouters, allRouters6)
	}
	return m.Records[0].Group
}

// appendIGMP appends the message with a checksum of 0.
func (m *Membership) appendIGMP(b []byte) []byte {
	switch {
	case m.Query:
		g := m.Group.As4()
		b = append(append(b, igmpQuery, uint8(min(m.MaxResponse*10/time.Second, 127)), 0, 0), g[:]...)
		if !m.Old {
			b = append(b, robustness, 0, 0, 0)
		}
		return b
	case m.Old:
		kind := uint8(igmpReport2)
		if m.Records[0].Type == RecordToInclude {
			kind = igmpLeave
		}
		g := m.Records[0].Group.As4()
		return append(append(b, kind, 0, 0, 0), g[:]...)
	}
	return m.appendRecords(append(b, igmpReport3, 0, 0, 0))
}

// robustness is the robustness variable in queries: up to robustness−1 messages in a row may be
// lost.
const robustness = 2

// appendMLD appends the message with a checksum of 0.
func (m *Membership) appendMLD(b []byte) []byte {
	switch {
	case m.Query:
		g, ms := m.Group.As16(), uint16(min(m.MaxResponse/time.Millisecond, 32767))
		b = append(append(b, mldQuery, 0, 0, 0, byte(ms>>8), byte(ms), 0, 0), g[:]...)
		if !m.Old {
			b = append(b, robustness, 0, 0, 0)
		}
		return b
	case m.Old:
		kind := uint8(mldReport1)
		if m.Records[0].Type == RecordToInclude {
			kind = mldDone
		}
		g := m.Records[0].Group.As16()
		return append(append(b, kind, 0, 0, 0, 0, 0, 0, 0), g[:]...)
	}
	return m.appendRecords(append(b, mldReport2, 0, 0, 0))
}

// appendRecords appends the number of records and the records.
func (m *Membership) appendRecords(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.Records)))
	for i := range m.Records {
		r := &m.Records[i]
		b = append(b, uint8(r.Type), 0, 0, 0)
		b = append(b, r.Group.AsSlice()...)
	}
	return b
}

// checksum returns the checksum of an ICMPv6 message with its pseudo-header (RFC 4443, 2.3).
func (h *IPv6) checksum(msg []byte) uint16 {
	n := uint32(len(msg))
	return checksum(h.Src[:], h.Dst[:], []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n), 0, 0, 0, protocolICMPv6}, msg)
}
