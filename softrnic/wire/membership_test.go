package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"
)

// Groups have the Ethernet addresses of RFC 1112, 6.4 and RFC 2464, 7.
func TestGroupMAC(t *testing.T) {
	for group, want := range map[string]string{
		"239.129.2.3": "01:00:5e:01:02:03", "224.255.255.255": "01:00:5e:7f:ff:ff", "ff0e::1:2:a1b2:c3d4": "33:33:a1:b2:c3:d4",
	} {
		if got := GroupMAC(netip.MustParseAddr(group)); got.String() != want {
			t.Errorf("%s has %v, want %s", group, got, want)
		}
	}
}

func TestGroupFlooded(t *testing.T) {
	for group, want := range map[string]bool{
		"224.0.0.251": true, "224.0.1.1": false, "239.0.0.1": false, "ff02::1:ff00:1": true, "ff01::1": true, "ff05::1": false, "ff1e::1": false,
	} {
		if GroupFlooded(netip.MustParseAddr(group)) != want {
			t.Errorf("%s: want %v", group, want)
		}
	}
}

var membershipSource = MAC{2, 0x72, 0x9e, 0x37, 0, 5}

// memberships are messages of each kind, over both families.
func memberships() (list []Membership) {
	addr := netip.MustParseAddr
	for _, v := range []struct{ source, group, other, all string }{
		{"10.77.0.5", "239.1.2.3", "224.1.1.1", "0.0.0.0"}, {"fe80::72:9eff:fe37:5", "ff0e::1234", "ff15::1", "::"},
	} {
		source, group, other := addr(v.source), addr(v.group), addr(v.other)
		for _, old := range []bool{false, true} {
			list = append(list,
				Membership{Query: true, Old: old, Source: source, Group: addr(v.all), MaxResponse: 10 * time.Second},
				Membership{Query: true, Old: old, Source: source, Group: group, MaxResponse: time.Second},
				Membership{Old: old, Source: source, Records: []GroupRecord{{Type: RecordIsExclude, Group: group}}},
				Membership{Old: old, Source: source, Records: []GroupRecord{{Type: RecordToInclude, Group: group}}})
		}
		list = append(list, Membership{Source: source, Records: []GroupRecord{{Type: RecordToExclude, Group: group}, {Type: RecordIsExclude, Group: other}}})
	}
	return list
}

// What is written is read.
func TestMembershipBothWays(t *testing.T) {
	for _, want := range memberships() {
		b := want.AppendTo(nil, membershipSource)
		if len(b) != want.Len() {
			t.Errorf("%+v: %d bytes, Len says %d", want, len(b), want.Len())
		}
		var got Membership
		if err := got.Parse(b); err != nil {
			t.Errorf("%+v: %v", want, err)
			continue
		}
		if got.Records = slices.Clip(got.Records); len(got.Records) == 0 {
			got.Records = nil
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("read %+v, want %+v", got, want)
		}
		tagged := append(append(append([]byte{}, b[:12]...), 0x81, 0, 0, 5), b[12:]...)
		if err := got.Parse(tagged); err != nil || !MayBeMembership(b) || !MayBeMembership(tagged) || MayBeMembership(b[:33]) {
			t.Errorf("%+v is not recognised, %v", want, err)
		}
		if !MAC(b[:6]).IsMulticast() || MAC(b[6:12]) != membershipSource {
			t.Errorf("%+v from %v to %v", want, MAC(b[6:12]), MAC(b[:6]))
		}
	}
}

// The reports with which the kernel of Linux 6 joins and leaves 239.1.2.3 and ff0e::1234, byte for
// byte.
func TestMembershipOfLinux(t *testing.T) {
	const (
		igmp = "01005e00001602729e370005080046c00028000040000102f9a70a4d0005e000001694040000"
		mld  = "33330000001602729e37000586dd6000000000240001fe8000000000000000729efffe370005ff0200000000000000000000000000163a00050200000100"
	)
	for text, want := range map[string]GroupRecord{
		igmp + "2200e8f90000000104000000ef010203":                        {Type: RecordToExclude, Group: netip.MustParseAddr("239.1.2.3")},
		igmp + "2200e9f90000000103000000ef010203":                        {Type: RecordToInclude, Group: netip.MustParseAddr("239.1.2.3")},
		mld + "8f00c01c0000000104000000ff0e0000000000000000000000001234": {Type: RecordToExclude, Group: netip.MustParseAddr("ff0e::1234")},
		mld + "8f00c11c0000000103000000ff0e0000000000000000000000001234": {Type: RecordToInclude, Group: netip.MustParseAddr("ff0e::1234")},
	} {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		var m Membership
		if err := m.Parse(b); err != nil || m.Query || m.Old || len(m.Records) != 1 || m.Records[0] != want {
			t.Errorf("%s is read as %+v, %v", text, m, err)
			continue
		}
		if own := m.AppendTo(nil, membershipSource); !bytes.Equal(own, b) {
			t.Errorf("written\n%x, of Linux\n%x", own, b)
		}
	}
}

// Records join, leave, or say nothing.
func TestGroupRecords(t *testing.T) {
	for _, c := range []struct {
		r             GroupRecord
		joins, leaves bool
	}{
		{GroupRecord{Type: 1}, false, false},
		{GroupRecord{Type: 1, Sources: 1}, true, false},
		{GroupRecord{Type: 2}, true, false},
		{GroupRecord{Type: 3}, false, true},
		{GroupRecord{Type: 3, Sources: 2}, true, false},
		{GroupRecord{Type: 4}, true, false},
		{GroupRecord{Type: 5, Sources: 1}, true, false},
		{GroupRecord{Type: 6, Sources: 1}, false, false},
	} {
		if c.r.Joins() != c.joins || c.r.Leaves() != c.leaves {
			t.Errorf("%+v: joins %v, leaves %v", c.r, c.r.Joins(), c.r.Leaves())
		}
	}
}

// Time codes are numbers, or exponent and mantissa above their highest bit.
func TestMembershipTimes(t *testing.T) {
	for _, c := range []struct {
		code      uint32
		bit, bits int
		want      uint32
	}{{127, 7, 4, 127}, {0x80, 7, 4, 128}, {0xff, 7, 4, 31 << 10}, {0x8000, 15, 12, 1 << 15}, {0xffff, 15, 12, 0x1fff << 10}} {
		if got := decodeTime(c.code, c.bit, c.bits); got != c.want {
			t.Errorf("%#x is %d, want %d", c.code, got, c.want)
		}
	}
}

// Every damaged byte that a checksum covers, and every cut, is noticed.
func TestMembershipDamaged(t *testing.T) {
	for _, m := range memberships() {
		b := m.AppendTo(nil, membershipSource)
		var got Membership
		for n := range b {
			if got.Parse(b[:n]) == nil {
				t.Errorf("%+v: %d of %d bytes are a message", m, n, len(b))
			}
		}
		start := len(b) - m.messageLen(4, igmpOldLen, igmpQueryLen)
		if !m.Source.Is4() {
			start = len(b) - m.messageLen(16, mldOldLen, mldQueryLen)
		}
		for i := start; i < len(b); i++ {
			b[i] ^= 0x40
			if got.Parse(b) == nil {
				t.Errorf("%+v: byte %d is damaged", m, i)
			}
			b[i] ^= 0x40
		}
	}
}

// Queries of a length between those of two versions, and of MLD from beyond the link, are none (RFC
// 3376, 7.1; RFC 3810, 5.1.14, 8.1).
func TestQueriesOfNoVersion(t *testing.T) {
	for _, m := range memberships() {
		if !m.Query || !m.Old {
			continue
		}
		lengths, at := igmpQueryLen-igmpOldLen, ethernetLen+2
		if !m.Source.Is4() {
			lengths, at = mldQueryLen-mldOldLen, ethernetLen+4
		}
		for more := 2; more <= lengths; more += 2 {
			b := append(m.AppendTo(nil, membershipSource), make([]byte, more)...)
			b[at+1] += byte(more)
			if m.Source.Is4() {
				head := b[ethernetLen : ethernetLen+ipv4Len+4]
				head[10], head[11] = 0, 0
				binary.BigEndian.PutUint16(head[10:], checksum(head))
			} else {
				var ip IPv6
				if err := ip.Parse(b[ethernetLen:]); err != nil {
					t.Fatal(err)
				}
				msg := b[ethernetLen+ipv6Len+8:]
				msg[2], msg[3] = 0, 0
				binary.BigEndian.PutUint16(msg[2:], ip.checksum(msg))
			}
			var got Membership
			if err := got.Parse(b); (err == nil) != (more == lengths) || err == nil && got.Old {
				t.Errorf("%v, %d bytes more: %+v, %v", m.Source, more, got, err)
			}
		}
	}
	far := Membership{Query: true, Source: netip.MustParseAddr("fd00::1"), Group: netip.IPv6Unspecified(), MaxResponse: time.Second}
	if err := far.Parse(far.AppendTo(nil, membershipSource)); err == nil {
		t.Error("a query from beyond the link")
	}
}

func FuzzMembership(f *testing.F) {
	for _, m := range memberships() {
		f.Add(m.AppendTo(nil, membershipSource))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m Membership
		if m.Parse(b) != nil {
			return
		}
		if len(m.Records) > MaxGroupRecords || !m.Query && m.Old && len(m.Records) != 1 {
			t.Errorf("%d records", len(m.Records))
		}
		if out := m.AppendTo(nil, membershipSource); len(out) != m.Len() {
			t.Errorf("%d bytes, Len says %d", len(out), m.Len())
		}
	})
}
