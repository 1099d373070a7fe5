package lookuptable

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// fold reduces a ones' complement sum to 16 bits.
func fold(s uint32) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// sumOf returns the ones' complement sum of bytes.
func sumOf(b []byte) (s uint32) {
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return uint32(fold(s))
}

// packet makes an IP packet with right checksums.
func packet(r *rand.Rand, v6 bool, proto uint8) []byte {
	body := make([]byte, 20+r.IntN(41))
	for i := range body {
		body[i] = byte(r.Uint32())
	}
	be := binary.BigEndian
	eth := wire.Ethernet{Dst: wire.MAC{2, 1}, Src: wire.MAC{2, 2}, Type: wire.EtherTypeIPv4, Tagged: r.IntN(3) == 0, TCI: 7}
	var b []byte
	if v6 {
		eth.Type = wire.EtherTypeIPv6
		b = eth.AppendTo(nil)
		ip := make([]byte, 40)
		ip[0], ip[6], ip[7] = 0x60, proto, 64
		be.PutUint16(ip[4:], uint16(len(body)))
		for i := 8; i < 40; i++ {
			ip[i] = byte(r.Uint32())
		}
		b = append(b, ip...)
	} else {
		b = eth.AppendTo(nil)
		ip := make([]byte, 20)
		ip[0], ip[1], ip[8], ip[9] = 0x45, byte(r.Uint32()), 64, proto
		be.PutUint16(ip[2:], uint16(20+len(body)))
		for i := 12; i < 20; i++ {
			ip[i] = byte(r.Uint32())
		}
		be.PutUint16(ip[10:], ^uint16(sumOf(ip)))
		b = append(b, ip...)
	}
	b = append(b, body...)
	var v view
	v.parse(b)
	if proto == protoUDP {
		be.PutUint16(b[v.l4+2:], 53)
		be.PutUint16(b[v.l4+4:], uint16(len(body)))
	}
	if at := v.sumAt(b); at != 0 {
		be.PutUint16(b[at:], 0)
		be.PutUint16(b[at:], ^pseudo(b, &v))
	}
	return b
}

// pseudo returns the sum over the bytes behind the IP header and the pseudo-header.
func pseudo(b []byte, v *view) uint16 {
	src, dst := v.addrs(b)
	return fold(sumOf(b[v.l4:]) + sumOf(src) + sumOf(dst) + uint32(v.proto) + uint32(len(b)-v.l4))
}

// After any action the checksums are right, whether they were finished or not, and nothing changes
// but what the action says.
func TestActionsKeepChecksums(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	be := binary.BigEndian
	for range 20_000 {
		v6 := r.IntN(2) == 1
		proto := []uint8{protoTCP, protoUDP, protoICMP, protoICMPv6, 47}[r.IntN(5)]
		b := packet(r, v6, proto)
		var v view
		if !v.parse(b) {
			t.Fatalf("%x is not parsed", b)
		}
		was := bytes.Clone(b)
		f := packetio.Frame{Data: b}
		at := v.sumAt(b)
		if at != 0 && v.ports && r.IntN(3) == 0 { // unfinished: the field has the sum of the pseudo-header
			f.CsumPartial, f.CsumStart, f.CsumOffset = true, uint16(v.l4), uint16(at-v.l4)
			src, dst := v.addrs(b)
			be.PutUint16(b[at:], fold(sumOf(src)+sumOf(dst)+uint32(proto)+uint32(len(b)-v.l4)))
		}
		a := Action{Ops: Ops(r.Uint32()) & (OpDSCP | []Ops{0, OpSource, OpDestination}[r.IntN(3)]), DSCP: uint8(r.IntN(64)), Port: uint16(r.IntN(3) * 777)}
		for i := range a.Addr {
			a.Addr[i] = byte(r.Uint32())
		}
		mac := wire.MAC{2, 9, 9}
		a.apply(&f, &v, true, func(netip.Addr) (wire.MAC, bool) { return mac, true })
		f.FinishChecksum()
		if !v6 && fold(sumOf(b[v.ip:v.l4])) != 0xffff {
			t.Fatalf("%+v: the IPv4 checksum is wrong", a)
		}
		if at != 0 && pseudo(b, &v) != 0xffff {
			t.Fatalf("%+v: the checksum of protocol %d is wrong; v6 %v, partial %v", a, proto, v6, f.CsumOffset != 0)
		}
		src, dst := v.addrs(b)
		osrc, odst := v.addrs(was)
		sp, dp := 0, 2
		if a.Ops&OpSource != 0 && !bytes.Equal(src, a.Addr[:len(src)]) || a.Ops&OpSource == 0 && !bytes.Equal(src, osrc) ||
			a.Ops&OpDestination != 0 && (!bytes.Equal(dst, a.Addr[:len(dst)]) || wire.MAC(b[:6]) != mac) || a.Ops&OpDestination == 0 && !bytes.Equal(dst, odst) {
			t.Fatalf("%+v: addresses %x and %x, were %x and %x", a, src, dst, osrc, odst)
		}
		for op, p := range map[Ops]int{OpSource: sp, OpDestination: dp} {
			want := be.Uint16(was[v.l4+p:])
			if a.Ops&op != 0 && a.Port != 0 && v.ports {
				want = a.Port
			}
			if got := be.Uint16(b[v.l4+p:]); v.ports && got != want {
				t.Fatalf("%+v: port %d, want %d", a, got, want)
			}
		}
		if dscp := b[v.ip+1] >> 2; !v6 && a.Ops&OpDSCP != 0 && (dscp != a.DSCP || (b[v.ip+1]^was[v.ip+1])&3 != 0) {
			t.Fatalf("DSCP %d, want %d", dscp, a.DSCP)
		}
		if v6 && a.Ops&OpDSCP != 0 && (be.Uint16(b[v.ip:])>>6&0x3f != uint16(a.DSCP) || be.Uint16(b[v.ip:])>>12 != 6) {
			t.Fatalf("traffic class of %x, want DSCP %d", b[v.ip:v.ip+2], a.DSCP)
		}
	}
}

// A UDP packet without a checksum gets none, and RoCEv2 packets are not rewritten.
func TestUDPWithoutChecksum(t *testing.T) {
	b := packet(rand.New(rand.NewPCG(1, 1)), false, protoUDP)
	var v view
	v.parse(b)
	binary.BigEndian.PutUint16(b[v.l4+6:], 0)
	a := Action{Ops: OpSource, Addr: [16]byte{10, 9, 8, 7}}
	a.apply(&packetio.Frame{Data: b}, &v, true, nil)
	if binary.BigEndian.Uint16(b[v.l4+6:]) != 0 {
		t.Error("a packet without a checksum has one")
	}
	binary.BigEndian.PutUint16(b[v.l4+2:], rocePort)
	if mark := (Action{Ops: OpDSCP}); a.fits(b, &v) || !mark.fits(b, &v) {
		t.Error("a RoCEv2 packet is rewritten, or not marked")
	}
}

// A later fragment has no ports, and its bytes are not taken for a checksum.
func TestLaterFragment(t *testing.T) {
	b := packet(rand.New(rand.NewPCG(1, 4)), false, protoTCP)
	var v view
	v.parse(b)
	b[v.ip+7] = 8
	v.parse(b)
	if k := v.key(b, true); k.SrcPort != 0 || k.DstPort != 0 || v.sumAt(b) != 0 {
		t.Errorf("a fragment has the key %+v", k)
	}
}

// No frame makes the parser or an action reach beyond it.
func FuzzFrames(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, p := range []uint8{protoTCP, protoUDP, protoICMPv6} {
		f.Add(packet(r, false, p), uint8(31))
		f.Add(packet(r, true, p), uint8(31))
		f.Add(icmpError(packet(r, false, p), 60), uint8(8))
		f.Add(icmpError(packet(r, true, p), 60), uint8(16))
	}
	f.Fuzz(func(_ *testing.T, b []byte, ops uint8) {
		var v view
		if v.parse(b) {
			a := Action{Ops: Ops(ops) & opsKnown, Port: 9}
			v.key(b, true)
			a.fits(b, &v)
			a.apply(&packetio.Frame{Data: b}, &v, ops&1 == 0, func(netip.Addr) (wire.MAC, bool) { return wire.MAC{}, true })
		}
	})
}

// An entry is written as text and read again, and mistakes are told.
func TestEntryText(t *testing.T) {
	address := func(s string) (netip.Addr, error) {
		if s == "ms0" {
			return netip.MustParseAddr("10.0.0.9"), nil
		}
		return netip.ParseAddr(s)
	}
	port := func(a netip.Addr) int { return int(a.As4()[3]) }
	for text, want := range map[string]string{
		"from=10.0.0.1:5 to=ms0:80 proto=tcp dst=10.0.0.3:8080 dscp=46 egress=ms0": "from=10.0.0.1:5 to=10.0.0.9:80 proto=tcp dst=10.0.0.3:8080 dscp=46 egress=port9",
		"from=fd00::1 to=[fd00::2]:80 proto=udp drop":                              "from=fd00::1 to=[fd00::2]:80 proto=udp drop",
		"from=10.0.0.1 to=10.0.0.2 proto=icmp src=10.0.0.4":                        "from=10.0.0.1 to=10.0.0.2 proto=icmp src=10.0.0.4",
	} {
		e, err := (&Layout{Flow: true}).ParseEntry(text, address, port)
		if err != nil || e.String() != want {
			t.Errorf("%s: %v, %v", text, &e, err)
			continue
		}
		if again, err := (&Layout{Flow: true}).ParseEntry(want, address, port); err != nil || again != e {
			t.Errorf("%s is read as %v: %v", want, &again, err)
		}
	}
	for text, want := range map[string]string{
		"":            "no destination",
		"to=10.0.0.2": "matches flows",
		"from=1.1.1.1:9 to=1.1.1.2:4791 proto=udp src=1.1.1.3": "ICRC",
		"from=1.1.1.1 to=1.1.1.2 proto=x":                      "proto",
		"from=1.1.1.1 to=1.1.1.2:9 proto=icmp":                 "only tcp and udp have ports",
		"from=1.1.1.1 to=fd00::1 proto=6":                      "mixes",
		"to=1.1.1.2 to=1.1.1.3":                                "twice",
		"to=1.1.1.2:99999":                                     "no port",
		"to=1.1.1.2 src=1.1.1.1 dst=1.1.1.1":                   "one of them",
		"to=1.1.1.2 dscp=64":                                   "0 to 63",
		"to=1.1.1.2 drop=1":                                    "no value",
		"to=1.1.1.2 fast":                                      "unknown",
		"to=0.0.0.0":                                           "no address of a machine",
	} {
		if _, err := (&Layout{Flow: true}).ParseEntry(text, address, port); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := (&Layout{Flow: false}).ParseEntry("to=1.1.1.2 from=1.1.1.1", address, port); err == nil {
		t.Error("a destination with a source")
	}
}
