package lookuptable

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// header makes a frame with an IP header for a protocol and n bytes behind it. options are bytes of
// options in an IPv4 header.
func header(tagged, v6 bool, proto uint8, options, n int) []byte {
	eth := wire.Ethernet{Type: wire.EtherTypeIPv4, Tagged: tagged}
	ip, addrs := make([]byte, ip4Len+options), ip4Len-8
	ip[0], ip[9] = 0x40|byte(len(ip)/4), proto
	if v6 {
		eth.Type, ip, addrs = wire.EtherTypeIPv6, make([]byte, ip6Len), ip6Len-32
		ip[0], ip[6] = 0x60, proto
	}
	for i := addrs; i < len(ip); i++ {
		ip[i] = byte(i)
	}
	b := append(eth.AppendTo(nil), ip...)
	for i := range n {
		b = append(b, byte(0xa0+i))
	}
	return b
}

// What the switch reads of a frame: whether it is a complete IP packet, and whether it has the ports of TCP
// or UDP, which a cut packet or another protocol does not have.
func TestHeaders(t *testing.T) {
	for _, tc := range []struct {
		what          string
		b             []byte
		ok, v6, ports bool
		l4            int // sums of TCP and UDP are 16 and 6 bytes behind it
	}{
		{"TCP", header(false, false, protoTCP, 0, 20), true, false, true, 34},
		{"TCP that is cut", header(false, false, protoTCP, 0, 19), true, false, false, 34},
		{"UDP", header(false, false, protoUDP, 0, 8), true, false, true, 34},
		{"UDP that is cut", header(false, false, protoUDP, 0, 7), true, false, false, 34},
		{"ICMP", header(false, false, protoICMP, 0, 30), true, false, false, 34},
		{"TCP with a tag", header(true, false, protoTCP, 0, 20), true, false, true, 38},
		{"TCP behind options", header(false, false, protoTCP, 40, 20), true, false, true, 74},
		{"options that are cut", header(false, false, protoTCP, 40, 0)[:73], false, false, false, 0},
		{"no byte behind the header", header(false, false, protoTCP, 0, 0), true, false, false, 34},
		{"a header that is cut", header(false, false, protoTCP, 0, 0)[:33], false, false, false, 0},
		{"IPv6 with TCP", header(false, true, protoTCP, 0, 20), true, true, true, 54},
		{"IPv6 with UDP that is cut", header(false, true, protoUDP, 0, 7), true, true, false, 54},
		{"IPv6 with a tag", header(true, true, protoUDP, 0, 8), true, true, true, 58},
		{"an IPv6 header alone", header(false, true, protoTCP, 0, 0), true, true, false, 54},
		{"an IPv6 header that is cut", header(false, true, protoTCP, 0, 0)[:53], false, false, false, 0},
		{"a frame of 17 bytes", make([]byte, 17), false, false, false, 0},
	} {
		var v view
		ok := v.parse(tc.b)
		if ok != tc.ok || ok && (v.v6 != tc.v6 || v.ports != tc.ports || v.l4 != tc.l4 || !v.inner) {
			t.Errorf("%s: %v, %+v", tc.what, ok, v)
		}
		sum := 0
		if tc.ports {
			sum = tc.l4 + map[uint8]int{protoTCP: 16, protoUDP: 6}[v.proto]
		}
		if ok && v.sumAt(tc.b) != sum {
			t.Errorf("%s: the checksum is at %d, not %d", tc.what, v.sumAt(tc.b), sum)
		}
	}
	for n, sum := range map[int]int{7: 0, 8: 56} {
		b := header(false, true, protoICMPv6, 0, n)
		if v := new(view); !v.parse(b) || v.sumAt(b) != sum {
			t.Errorf("ICMPv6 of %d bytes: the checksum is at %d", n, v.sumAt(b))
		}
	}
	for what, change := range map[string]func(b []byte){
		"ARP":                          func(b []byte) { b[13] = 6 },
		"version 6 in an IPv4 frame":   func(b []byte) { b[14] = 0x65 },
		"version 4 in an IPv6 frame":   func(b []byte) { b[12], b[13] = 0x86, 0xdd },
		"a header of 16 bytes":         func(b []byte) { b[14] = 0x44 },
		"another Ethertype in the tag": func(b []byte) { copy(b[12:], []byte{0x81, 0, 0, 1, 8, 6}) },
	} {
		b := header(false, false, protoTCP, 0, 60)
		change(b)
		if v := new(view); v.parse(b) {
			t.Errorf("%s: %+v", what, v)
		}
	}
	b := header(false, false, protoTCP, 0, 20)
	for i, want := range map[int]bool{6: true, 7: false} { // the flag that more fragments follow; an offset
		b[14+6], b[14+7] = 0, 0
		b[14+i] = 0x20
		if v := new(view); !v.parse(b) || v.inner != want || v.ports != want {
			t.Errorf("byte %d of the fragment: %+v", i, v)
		}
	}
}

// The key of a flow has addresses, protocol and ports as they are in the packet; that of a destination has
// its address alone.
func TestKeysOfFrames(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		b := header(true, v6, protoTCP, 0, 20)
		var v view
		v.parse(b)
		src, dst := b[18+12:18+16], b[18+16:18+20]
		if v6 {
			src, dst = b[18+8:18+24], b[18+24:18+40]
		}
		want := Key{SrcPort: 0xa0a1, DstPort: 0xa2a3, Proto: protoTCP, V6: v6}
		copy(want.Src[:], src)
		copy(want.Dst[:], dst)
		if k := v.key(b, true); k != want {
			t.Errorf("the flow is %+v, want %+v", k, want)
		}
		if k := v.key(b, false); k != (Key{Dst: want.Dst, V6: v6}) {
			t.Errorf("the destination is %+v", k)
		}
	}
}

// Every field of a key changes its hash, and so does exchanging the ends, so that keys are spread over
// servers, slots and sets.
func TestHashOfKeys(t *testing.T) {
	base := Key{Src: [16]byte{10, 0, 0, 1}, Dst: [16]byte{10, 0, 0, 2}, SrcPort: 1, DstPort: 2, Proto: protoTCP}
	keys := map[string]Key{"base": base}
	add := func(name string, change func(k *Key)) {
		k := base
		change(&k)
		keys[name] = k
	}
	add("source port", func(k *Key) { k.SrcPort++ })
	add("destination port", func(k *Key) { k.DstPort++ })
	add("protocol", func(k *Key) { k.Proto = protoUDP })
	add("ports exchanged", func(k *Key) { k.SrcPort, k.DstPort = 2, 1 })
	add("ends exchanged", func(k *Key) { k.Src, k.Dst = k.Dst, k.Src })
	add("IPv6", func(k *Key) { k.V6 = true })
	for i := range 16 {
		add("", func(*Key) {})
		if i < 4 {
			add(string(rune('a'+i)), func(k *Key) { k.Src[i] ^= 0x80 })
			add(string(rune('A'+i)), func(k *Key) { k.Dst[i] ^= 0x80 })
		}
		add("6"+string(rune('a'+i)), func(k *Key) { k.V6, k.Src[i] = true, k.Src[i]^0x80 })
		add("6"+string(rune('A'+i)), func(k *Key) { k.V6, k.Dst[i] = true, k.Dst[i]^0x80 })
	}
	delete(keys, "")
	seen := map[uint64]string{}
	for name, k := range keys {
		h := k.Hash()
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s have the same hash", name, other)
		}
		seen[h] = name
	}
}

// An address stays the same in a key, an IPv4 address that is written as IPv6, too.
func TestAddressesInKeys(t *testing.T) {
	for text, want := range map[string]string{"10.1.2.3": "10.1.2.3", "::ffff:10.1.2.3": "10.1.2.3", "fd00::1:2": "fd00::1:2"} {
		a := netip.MustParseAddr(text)
		if got := addrOf(bytesOf(a), !a.Unmap().Is4()).String(); got != want {
			t.Errorf("%s is %s in a key, want %s", text, got, want)
		}
	}
}

// Which ICMP messages quote a packet (RFC 792, RFC 4443): unreachable, quench, redirect, time exceeded and
// parameter problem of IPv4, types 1 to 4 of IPv6.
func TestICMPErrors(t *testing.T) {
	errors := map[bool][]byte{false: {3, 4, 5, 11, 12}, true: {1, 2, 3, 4}}
	r := rand.New(rand.NewPCG(1, 1))
	for v6, types := range errors {
		b := icmpError(packet(r, v6, protoUDP), 100)
		var v view
		v.parse(b)
		for kind := range 256 {
			b[v.l4] = byte(kind)
			want := false
			for _, x := range types {
				want = want || int(x) == kind
			}
			if v.isError(b) != want {
				t.Errorf("v6 %v, type %d: %v", v6, kind, !want)
			}
		}
		b[v.l4] = types[0]
		if v.isError(b[:v.l4+7]) || !v.isError(b[:v.l4+8]) {
			t.Error("an error has a header of 8 bytes")
		}
		for _, proto := range []uint8{protoTCP, map[bool]uint8{false: protoICMPv6, true: protoICMP}[v6]} {
			w := v
			w.proto = proto
			if w.isError(b) {
				t.Errorf("v6 %v, protocol %d is an ICMP error", v6, proto)
			}
		}
		later := v
		if later.inner = false; later.isError(b) {
			t.Error("a later fragment is an ICMP error")
		}
	}
}

// Only what an error quotes is read and changed. An IP header that is cut is no quote; ports are there from
// their fourth byte on, and a checksum with its last byte.
func TestQuotesThatAreCut(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, v6 := range []bool{false, true} {
		ip := map[bool]int{false: ip4Len, true: ip6Len}[v6]
		for proto, sum := range map[uint8]int{protoTCP: 16, protoUDP: 6, protoICMPv6: 2, 47: 0} {
			p := packet(r, v6, proto)
			if proto == protoICMPv6 && !v6 {
				sum = 0
			}
			for n := range 41 {
				b := icmpError(p, ip-1+n)
				var v view
				var q quote
				v.parse(b)
				if ok := v.parseQuote(b, &q); ok != (n >= 1) {
					t.Fatalf("v6 %v: a quote of %d bytes: %v", v6, ip-1+n, ok)
				} else if !ok {
					continue
				}
				quoted := min(n-1, len(p)-ethLen-ip)
				ported := proto == protoTCP || proto == protoUDP
				if q.ports != (ported && quoted >= 4) {
					t.Errorf("v6 %v, protocol %d, %d bytes: ports %v", v6, proto, quoted, q.ports)
				}
				want := 0
				if sum > 0 && quoted >= sum+2 {
					want = q.l4 + sum
				}
				if got := q.sumAt(b); got != want {
					t.Errorf("v6 %v, protocol %d, %d bytes: the checksum is at %d, not %d", v6, proto, quoted, got, want)
				}
			}
		}
	}
}

// The quote of a later fragment has no ports and no checksum.
func TestQuotesOfLaterFragments(t *testing.T) {
	p := packet(rand.New(rand.NewPCG(1, 4)), false, protoTCP)
	b := icmpError(p, 60)
	var v view
	var q quote
	v.parse(b)
	b[v.l4+icmpLen+7] = 8
	if !v.parseQuote(b, &q) || q.ports || q.sumAt(b) != 0 {
		t.Errorf("%+v", q)
	}
	if k := v.key(b, true); k.SrcPort != 0 || k.DstPort != 0 || k.Proto != protoTCP {
		t.Errorf("the key of the error is %+v", k)
	}
}

// A quote whose checksum is cut in half, or whose length is odd, is rewritten so that the checksum of the
// error is right. An error whose checksum the NIC finishes gets none.
func TestChecksumOfErrorsWithOddQuotes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for range 2000 {
		v6 := r.IntN(2) == 1
		p := packet(r, v6, []uint8{protoTCP, protoUDP}[r.IntN(2)])
		b := icmpError(p, map[bool]int{false: ip4Len, true: ip6Len}[v6]+r.IntN(30))
		var v view
		v.parse(b)
		a := Action{Ops: []Ops{OpSource, OpDestination}[r.IntN(2)], Port: uint16(r.IntN(2) * 99)}
		for i := range a.Addr {
			a.Addr[i] = byte(r.Uint32())
		}
		was := [12]byte(b)
		a.apply(&packetio.Frame{Data: b}, &v, true, func(netip.Addr) (wire.MAC, bool) { return wire.MAC{}, false })
		if icmpSum(b) != 0xffff || [12]byte(b) != was {
			t.Fatalf("the checksum of an error with %d bytes, or its MAC addresses, are wrong: %+v", len(b)-v.l4-icmpLen, a)
		}
	}
	p := packet(r, false, protoUDP)
	b := icmpError(p, 60)
	var v view
	v.parse(b)
	was := binary.BigEndian.Uint16(b[v.l4+2:])
	a := Action{Ops: OpSource, Addr: [16]byte{1, 2, 3, 4}}
	a.apply(&packetio.Frame{Data: b, CsumPartial: true, CsumStart: uint16(v.l4), CsumOffset: 2}, &v, true, nil)
	if binary.BigEndian.Uint16(b[v.l4+2:]) != was {
		t.Error("a checksum that is not finished has changed")
	}
}

// Only UDP packets to port 4791 are RoCEv2: other ones are rewritten.
func TestWhatIsRewritten(t *testing.T) {
	for _, tc := range []struct {
		proto uint8
		port  uint16
		n     int
		fits  bool
	}{
		{protoUDP, rocePort, 20, false}, {protoUDP, rocePort + 1, 20, true}, {protoTCP, rocePort, 20, true}, {protoUDP, rocePort, 7, true},
	} {
		b := header(false, false, tc.proto, 0, tc.n)
		binary.BigEndian.PutUint16(b[36:], tc.port)
		var v view
		v.parse(b)
		for ops, want := range map[Ops]bool{OpSource: tc.fits, OpDestination: tc.fits, OpDSCP | OpEgress | OpDrop: true} {
			if a := (Action{Ops: ops}); a.fits(b, &v) != want {
				t.Errorf("%+v, what to do %d: fits %v", tc, ops, !want)
			}
		}
	}
}

// A destination that no host has keeps the MAC address of the packet, which is a router's.
func TestDestinationOutsideOfTheRack(t *testing.T) {
	b := packet(rand.New(rand.NewPCG(1, 1)), false, protoTCP)
	var v view
	v.parse(b)
	a := Action{Ops: OpDestination, Addr: [16]byte{10, 9, 8, 7}}
	asked := netip.Addr{}
	a.apply(&packetio.Frame{Data: b}, &v, true, func(x netip.Addr) (wire.MAC, bool) { asked = x; return wire.MAC{9}, false })
	if wire.MAC(b[:6]) != (wire.MAC{2, 1}) || asked != netip.MustParseAddr("10.9.8.7") {
		t.Errorf("MAC address %x; asked for %v", b[:6], asked)
	}
}

// The DSCP is written, and nothing else of its bytes: not ECN, and not the flow label of IPv6.
func TestDSCPAlone(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		b := header(false, v6, protoTCP, 0, 20)
		first := b[14]
		b[15] |= 0xff
		if v6 {
			b[14] |= 0xf
			first |= 0x2d >> 2
		}
		var v view
		v.parse(b)
		a := Action{Ops: OpDSCP, DSCP: 0x2d}
		a.apply(&packetio.Frame{Data: b}, &v, true, nil)
		if want := map[bool]byte{false: 0x2d<<2&0xff | 3, true: 0x2d<<6&0xff | 0x3f}[v6]; b[14] != first || b[15] != want {
			t.Errorf("v6 %v: %#x %#x, want %#x %#x", v6, b[14], b[15], first, want)
		}
	}
}

// Each WRITE of a slot increments its version, so that a reader sees that it was changed.
func TestVersionsOfSlots(t *testing.T) {
	m := newMemory(1)
	e, other := Entry{keyOf(1), Action{Ops: OpDrop}}, Entry{keyOf(2), Action{}}
	for i, do := range []func() error{
		func() error { return m.change(&e, false) }, func() error { return m.change(&e, false) }, func() error { return m.change(&e, true) },
		func() error { return m.change(&other, false) }, func() error { return m.change(&other, false) },
	} {
		if err := do(); err != nil || m.bytes[0] != byte(i+1) || m.bytes[SlotLen-1] != byte(i+1) {
			t.Errorf("change %d: %v, versions %d and %d", i+1, err, m.bytes[0], m.bytes[SlotLen-1])
		}
	}
}

// The bytes of an entry are as the package says, so that another control plane can write them.
func TestBytesOfASlot(t *testing.T) {
	e := Entry{
		Key{Src: [16]byte{1, 15: 2}, Dst: [16]byte{3, 15: 4}, SrcPort: 0x0506, DstPort: 0x0708, Proto: 9, V6: true},
		Action{Ops: OpDSCP | OpSource, DSCP: 0x15, Egress: 0x1617, Addr: [16]byte{18, 15: 19}, Port: 0x2021},
	}
	want := make([]byte, SlotLen)
	for at, bytes := range map[int][]byte{
		0: {7, 3, byte(OpDSCP | OpSource), 9}, 4: {1}, 19: {2}, 20: {3}, 35: {4}, 36: {5, 6, 7, 8}, 40: {18}, 55: {19}, 56: {0x20, 0x21, 0x15}, 60: {0x16, 0x17}, 63: {7},
	} {
		copy(want[at:], bytes)
	}
	b := AppendSlot(nil, 7, &e, true)
	if string(b) != string(want) {
		t.Errorf("\n%x, want\n%x", b, want)
	}
	var got Entry
	if s := parseSlot(b, &got); s != slotUsed || got != e {
		t.Errorf("read as %v, %+v", s, got)
	}
	want = make([]byte, SlotLen)
	want[0], want[63] = 8, 8
	if b = AppendSlot(nil, 8, &e, false); string(b) != string(want) || parseSlot(b, &got) != slotFree {
		t.Errorf("a free slot is %x", b)
	}
	e.Key.V6 = false
	if b = AppendSlot(nil, 7, &e, true); b[1] != flagUsed || !ReadSlot(b, &got) || got != e {
		t.Errorf("without IPv6: %x", b)
	}
	b[58] = 0xff // a DSCP has six bits
	b[2] = 0xff  // and five things can be done
	if ReadSlot(b, &got); got.Action.DSCP != 63 || got.Action.Ops != opsKnown {
		t.Errorf("%+v", got.Action)
	}
}
