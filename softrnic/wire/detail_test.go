package wire

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// igmpOf is a frame with a message of IGMP, with its checksum, in a packet with n words of options.
func igmpOf(n int, msg ...byte) []byte {
	binary.BigEndian.PutUint16(msg[2:], 0)
	binary.BigEndian.PutUint16(msg[2:], checksum(msg))
	head := make([]byte, 20+4*n)
	head[0], head[8], head[9] = byte(0x45+n), 1, protocolIGMP
	binary.BigEndian.PutUint16(head[2:], uint16(len(head)+len(msg)))
	copy(head[12:], []byte{10, 0, 0, 1, 224, 0, 0, 1})
	binary.BigEndian.PutUint16(head[10:], checksum(head))
	eth := Ethernet{Type: EtherTypeIPv4}
	return append(append(eth.AppendTo(nil), head...), msg...)
}

// mldOf is a frame with a message of MLD, with its checksum, behind a hop-by-hop header of 8·(n+1)
// bytes.
func mldOf(n int, msg ...byte) []byte {
	ip := IPv6{NextHeader: hopByHop, HopLimit: 1, Src: [16]byte{0xfe, 0x80, 15: 1}, Dst: [16]byte{0xff, 2, 15: 1}}
	binary.BigEndian.PutUint16(msg[2:], 0)
	binary.BigEndian.PutUint16(msg[2:], ip.checksum(msg))
	eth := Ethernet{Type: EtherTypeIPv6}
	b := ip.AppendTo(eth.AppendTo(nil), 8*(n+1)+len(msg))
	b = append(b, append([]byte{protocolICMPv6, byte(n)}, make([]byte, 8*(n+1)-2)...)...)
	return append(b, msg...)
}

// Queries of each version, with the response times that they stand for.
func TestQueriesOfEachVersion(t *testing.T) {
	group := []byte{239, 1, 2, 3}
	igmp := func(code byte, rest ...byte) []byte {
		return append(append([]byte{igmpQuery, code, 0, 0}, group...), rest...)
	}
	group6 := netip.MustParseAddr("ff0e::1").AsSlice()
	mld := func(code uint16, rest ...byte) []byte {
		return append(append([]byte{mldQuery, 0, 0, 0, byte(code >> 8), byte(code), 0, 0}, group6...), rest...)
	}
	for what, c := range map[string]struct {
		frame []byte
		old   bool
		most  time.Duration
	}{
		"IGMP 1":                 {igmpOf(0, igmp(0)...), true, 10 * time.Second},
		"IGMP 2":                 {igmpOf(0, igmp(1)...), true, 100 * time.Millisecond},
		"IGMP 2, the longest":    {igmpOf(0, igmp(255)...), true, 25500 * time.Millisecond},
		"IGMP 3":                 {igmpOf(0, igmp(100, 0, 0, 0, 0)...), false, 10 * time.Second},
		"IGMP 3, at once":        {igmpOf(0, igmp(0, 0, 0, 0, 0)...), false, 0},
		"IGMP 3 with exponent":   {igmpOf(0, igmp(0x80, 0, 0, 0, 0)...), false, 12800 * time.Millisecond},
		"IGMP 3 with options":    {igmpOf(1, igmp(100, 0, 0, 0, 0)...), false, 10 * time.Second},
		"IGMP 3 with a source":   {igmpOf(0, igmp(100, 0, 0, 0, 1, 10, 0, 0, 1)...), false, 10 * time.Second},
		"MLD 1":                  {mldOf(0, mld(1000)...), true, time.Second},
		"MLD 1, the longest":     {mldOf(0, mld(65535)...), true, 65535 * time.Millisecond},
		"MLD 2":                  {mldOf(0, mld(1000, 0, 0, 0, 0)...), false, time.Second},
		"MLD 2 with exponent":    {mldOf(0, mld(0x8000, 0, 0, 0, 0)...), false, 32768 * time.Millisecond},
		"MLD 2 with a long head": {mldOf(1, mld(1000, 0, 0, 0, 0)...), false, time.Second},
	} {
		var m Membership
		if err := m.Parse(c.frame); err != nil || !m.Query || m.Old != c.old || m.MaxResponse != c.most || !m.Group.IsMulticast() {
			t.Errorf("%s: %+v, %v", what, m, err)
		}
		if !MayBeMembership(c.frame) {
			t.Errorf("%s is not recognised", what)
		}
		for n := range c.frame {
			if err := m.Parse(c.frame[:n]); err == nil {
				t.Errorf("%s: %d of %d bytes are read", what, n, len(c.frame))
			}
		}
	}
}

// Reports with sources and auxiliary data are read record by record, and a record that does not fit
// is refused; another message is none.
func TestRecordsOfReports(t *testing.T) {
	igmp := []byte{
		igmpReport3, 0, 0, 0, 0, 0, 0, 3,
		4, 0, 0, 0, 239, 0, 0, 1,
		1, 0, 0, 2, 239, 0, 0, 2, 10, 0, 0, 1, 10, 0, 0, 2,
		2, 1, 0, 0, 239, 0, 0, 3, 9, 9, 9, 9,
	}
	group := netip.MustParseAddr("ff0e::1").AsSlice()
	mld := append([]byte{mldReport2, 0, 0, 0, 0, 0, 0, 2, 4, 0, 0, 1}, group...)
	mld = append(append(mld, make([]byte, 16)...), append([]byte{2, 1, 0, 0}, group...)...)
	mld = append(mld, 9, 9, 9, 9)
	m := Membership{Query: true, Old: true, MaxResponse: 5, Group: netip.MustParseAddr("239.9.9.9")} // of another message
	if err := m.Parse(igmpOf(1, igmp...)); err != nil || len(m.Records) != 3 || m.Query || m.Old || m.MaxResponse != 0 || m.Group.IsValid() {
		t.Fatalf("%+v, %v", m, err)
	}
	for i, want := range []GroupRecord{
		{Type: RecordToExclude, Group: netip.MustParseAddr("239.0.0.1")},
		{Type: 1, Sources: 2, Group: netip.MustParseAddr("239.0.0.2")},
		{Type: RecordIsExclude, Group: netip.MustParseAddr("239.0.0.3")},
	} {
		if m.Records[i] != want {
			t.Errorf("record %d: %+v, want %+v", i, m.Records[i], want)
		}
	}
	if err := m.Parse(mldOf(0, mld...)); err != nil || len(m.Records) != 2 || m.Records[0].Sources != 1 || m.Records[1].Type != RecordIsExclude {
		t.Errorf("%+v, %v", m, err)
	}
	for n := range igmp[:len(igmp)/2*2] {
		if n < 8 || n%2 != 0 {
			continue
		}
		if err := m.Parse(igmpOf(0, append([]byte(nil), igmp[:n]...)...)); err == nil {
			t.Errorf("%d of %d bytes of a report are read", n, len(igmp))
		}
	}
	change := func(at int, x byte) []byte {
		b := append([]byte(nil), igmp...)
		b[at] = x
		return igmpOf(0, b...)
	}
	for what, frame := range map[string][]byte{
		"an unknown message": change(0, 0x23), "a group that is none": change(12, 10), "513 records": change(6, 2),
		"an unknown message of MLD": mldOf(0, append([]byte{133, 0, 0, 0, 0, 0, 0, 0}, group...)...),
		"a short message of MLD":    mldOf(0, append([]byte{mldQuery, 0, 0, 0, 0, 0, 0, 0}, group[:14]...)...),
	} {
		if err := m.Parse(frame); !errors.Is(err, ErrNotMembership) {
			t.Errorf("%s: %v", what, err)
		}
	}
	full := append([]byte{igmpReport3, 0, 0, 0, 0, 0, MaxGroupRecords >> 8, MaxGroupRecords & 0xff}, make([]byte, 8*MaxGroupRecords)...)
	for i := range MaxGroupRecords {
		copy(full[8+8*i:], []byte{4, 0, 0, 0, 239, 0, byte(i >> 8), byte(i)})
	}
	if err := m.Parse(igmpOf(0, full...)); err != nil || len(m.Records) != MaxGroupRecords {
		t.Errorf("%d records, %v", len(m.Records), err)
	}
}

// What only looks like a message: another protocol, another TTL, a wrong length of the header.
func TestNoMembership(t *testing.T) {
	good := igmpOf(0, igmpReport2, 0, 0, 0, 239, 1, 2, 3)
	var m Membership
	if m.Parse(good) != nil {
		t.Fatal("the frame itself is refused")
	}
	for what, change := range map[string]func(ip []byte){
		"TTL 2": func(ip []byte) { ip[8] = 2 }, "UDP": func(ip []byte) { ip[9] = 17 }, "IPv5": func(ip []byte) { ip[0] = 0x55 },
		"16 bytes of header": func(ip []byte) { ip[0] = 0x44 }, "a total length that is short": func(ip []byte) { ip[3] -= 2 },
		"a total length that is long": func(ip []byte) { ip[3] += 2 },
	} {
		b := append([]byte(nil), good...)
		ip := b[14:34]
		change(ip)
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], checksum(ip))
		if err := m.Parse(b); !errors.Is(err, ErrNotMembership) {
			t.Errorf("%s: %v", what, err)
		}
	}
	mld := mldOf(0, append([]byte{mldReport1, 0, 0, 0, 0, 0, 0, 0}, netip.MustParseAddr("ff0e::1").AsSlice()...)...)
	if m.Parse(mld) != nil {
		t.Fatal("the frame itself is refused")
	}
	for what, at := range map[string]int{"hop limit": 14 + 7, "next header": 14 + 6, "next header of the options": 14 + 40} {
		b := append([]byte(nil), mld...)
		b[at]++
		if err := m.Parse(b); !errors.Is(err, ErrNotMembership) {
			t.Errorf("another %s: %v", what, err)
		}
	}
	for n, want := range map[int]bool{33: false, 34: true} {
		if MayBeMembership(good[:n]) != want {
			t.Errorf("%d bytes: %v", n, !want)
		}
	}
	other := append([]byte(nil), good...)
	other[12], other[13] = 0x08, 0x06
	if MayBeMembership(other) {
		t.Error("ARP may be a message")
	}
	tagged := append(append(append([]byte(nil), good[:12]...), 0x81, 0, 0, 5), good[12:]...)
	for n, want := range map[int]bool{17: false, 37: false, 38: true} {
		if MayBeMembership(tagged[:n]) != want {
			t.Errorf("%d bytes with a tag: %v", n, !want)
		}
	}
}

// Queries and old reports as they are on the wire.
func TestBytesOfMembership(t *testing.T) {
	addr := netip.MustParseAddr
	for _, c := range []struct {
		m    Membership
		want string // the message
	}{
		{Membership{Query: true, Source: addr("10.0.0.1"), Group: addr("0.0.0.0"), MaxResponse: 10 * time.Second}, "1164ec9b00000000" + "02000000"},
		{Membership{Query: true, Source: addr("10.0.0.1"), Group: addr("239.1.2.3"), MaxResponse: time.Hour}, "117ffb7bef010203" + "02000000"},
		{Membership{Query: true, Old: true, Source: addr("10.0.0.1"), Group: addr("239.1.2.3"), MaxResponse: time.Second}, "110afdf0ef010203"},
		{Membership{Old: true, Source: addr("10.0.0.1"), Records: []GroupRecord{{Type: RecordIsExclude, Group: addr("239.1.2.3")}}}, "1600f8faef010203"},
		{Membership{Old: true, Source: addr("10.0.0.1"), Records: []GroupRecord{{Type: RecordToInclude, Group: addr("239.1.2.3")}}}, "1700f7faef010203"},
		{
			Membership{Query: true, Source: addr("fe80::1"), Group: addr("ff0e::1"), MaxResponse: time.Hour},
			"8200....7fff0000" + "ff0e0000000000000000000000000001" + "02000000",
		},
		{
			Membership{Old: true, Source: addr("fe80::1"), Records: []GroupRecord{{Type: RecordToInclude, Group: addr("ff0e::1")}}},
			"8400....00000000" + "ff0e0000000000000000000000000001",
		},
	} {
		got := hex.EncodeToString(c.m.AppendTo(nil, membershipSource))
		at := len(got) - len(c.want)
		if at < 0 {
			t.Fatal(got)
		}
		got = got[at:]
		if i := strings.Index(c.want, "...."); i >= 0 { // the checksum covers the addresses
			got = got[:i] + "...." + got[i+4:]
		}
		if got != c.want {
			t.Errorf("%+v is\n%s, want\n%s", c.m, got, c.want)
		}
	}
}

// An error of a header says what was wanted.
func TestErrorsOfHeaders(t *testing.T) {
	v4 := (&IPv4{TTL: 1}).AppendTo(nil, 0)
	v6 := (&IPv6{HopLimit: 1}).AppendTo(nil, 0)
	for what, c := range map[string]struct {
		b      []byte
		change func(b []byte)
		want   FormatError
	}{
		"version of IPv4": {v4, func(b []byte) { b[0] = 0x55 }, FormatError{Header: "IPv4", Reason: ErrVersion, Got: 5, Want: 4}},
		"options":         {v4, func(b []byte) { b[0] = 0x46 }, FormatError{Header: "IPv4", Reason: ErrOptions, Got: 24, Want: 20}},
		"checksum":        {v4, func(b []byte) { b[10], b[11] = 1, 2 }, FormatError{Header: "IPv4", Reason: ErrChecksum, Got: 258, Want: int(binary.BigEndian.Uint16(v4[10:]))}},
		"version of IPv6": {v6, func(b []byte) { b[0] = 0x50 }, FormatError{Header: "IPv6", Reason: ErrVersion, Got: 5, Want: 6}},
		"payload":         {v6, func(b []byte) { b[5] = 1 }, FormatError{Header: "IPv6", Reason: ErrLength, Got: 1, Want: 0}},
	} {
		b := append([]byte(nil), c.b...)
		c.change(b)
		err := new(IPv4).Parse(b)
		if c.want.Header == "IPv6" {
			err = new(IPv6).Parse(b)
		}
		var got *FormatError
		if !errors.As(err, &got) || *got != c.want {
			t.Errorf("%s: %+v, want %+v", what, err, c.want)
		}
	}
	if got := checksum([]byte{0, 1, 0, 2, 0, 3}, []byte{0, 4}); got != ^uint16(10) {
		t.Errorf("checksum %#x", got)
	}
	for s, want := range map[string]Opcode{unknownPrefix + "ff": 0xff, strings.ToUpper(unknownPrefix) + "7": 7} {
		if o, err := ParseOpcode(s); err != nil || o != want {
			t.Errorf("%s: %v, %v", s, o, err)
		}
	}
	for _, s := range []string{unknownPrefix, "", unknownPrefix + "100", "x" + unknownPrefix + "7"} {
		if o, err := ParseOpcode(s); !errors.Is(err, ErrOpcode) {
			t.Errorf("%q is %v, %v", s, o, err)
		}
	}
}
