package afpacket

import (
	"bytes"
	"testing"

	"golang.org/x/net/bpf"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

func TestOffloadHeaderRoundTrip(t *testing.T) {
	for name, f := range map[string]packetio.Frame{
		"plain":            {},
		"partial checksum": {CsumPartial: true, CsumStart: 34, CsumOffset: 16},
		"RoCE super-frame": {CsumPartial: true, CsumStart: 34, CsumOffset: 6, SegSize: 4120},
		"TCP super-frame": {
			CsumPartial: true, CsumStart: 34, CsumOffset: 16,
			Offload: packetio.Offload{Type: 1, HdrLen: 66, Size: 4148},
		},
		"TCPv6 with ECN": {
			CsumPartial: true, CsumStart: 54, CsumOffset: 16,
			Offload: packetio.Offload{Type: 4 | gsoECN, HdrLen: 86, Size: 1400},
		},
	} {
		var h [vnetLen]byte
		encodeVnet(&h, &f)
		var got packetio.Frame
		decodeVnet(h[:], &got)
		got.Data = f.Data
		if got.SegSize != f.SegSize || got.CsumPartial != f.CsumPartial || got.CsumStart != f.CsumStart ||
			got.CsumOffset != f.CsumOffset || got.Offload != f.Offload {
			t.Errorf("%s: %+v became %+v", name, f, got)
		}
	}
}

// A header length that spans the whole frame would ask the kernel for as much contiguous memory.
func TestOffloadHeaderLengthIsBounded(t *testing.T) {
	f := packetio.Frame{CsumPartial: true, CsumStart: 34, Offload: packetio.Offload{Type: 1, HdrLen: 60000, Size: 1400}}
	var h [vnetLen]byte
	encodeVnet(&h, &f)
	var got packetio.Frame
	decodeVnet(h[:], &got)
	if got.Offload.HdrLen != 34+maxTCPHeader {
		t.Errorf("header length %d", got.Offload.HdrLen)
	}
}

func TestPacketsOfAFrame(t *testing.T) {
	for _, c := range []struct {
		f    packetio.Frame
		want uint64
	}{
		{packetio.Frame{Data: make([]byte, 100)}, 1},
		{packetio.Frame{Data: make([]byte, 42+1000), SegSize: 1000, CsumStart: 34}, 1},
		{packetio.Frame{Data: make([]byte, 42+1001), SegSize: 1000, CsumStart: 34}, 2},
		{packetio.Frame{Data: make([]byte, 54+3000), CsumStart: 34, Offload: packetio.Offload{Type: 1, Size: 1000}}, 3},
		{packetio.Frame{Data: make([]byte, 10), SegSize: 1, CsumStart: 34}, 1},
	} {
		if got := packets(&c.f); got != c.want {
			t.Errorf("packets(%d bytes, %+v) = %d, want %d", len(c.f.Data), c.f.Offload, got, c.want)
		}
	}
}

func TestInsertTag(t *testing.T) {
	mem := make([]byte, 100)
	copy(mem[20:], frame(60, 9))
	f := packetio.Frame{CsumPartial: true, CsumStart: 34}
	insertTag(mem, 20, 60, tpid8021Q, 0x6005, &f)
	want := append(bytes.Clone(frame(60, 9)[:macsLen]), 0x81, 0, 0x60, 5)
	want = append(want, frame(60, 9)[macsLen:]...)
	if !bytes.Equal(f.Data, want) || f.CsumStart != 38 {
		t.Errorf("got % x, checksum from %d", f.Data, f.CsumStart)
	}
}

// udp4 and udp6 build frames for the filters: a tag if tci is not 0, IPv4 with opts bytes of
// options.
func udp4(opts int, proto byte, frag uint16, port uint16, tagged bool) []byte {
	b := ether(0x0800, tagged)
	ip := make([]byte, 20+opts)
	ip[0] = 0x40 | byte(len(ip)/4)
	ip[6], ip[7] = byte(frag>>8), byte(frag)
	ip[9] = proto
	return append(append(b, ip...), udpHeader(port)...)
}

func udp6(next byte, port uint16, tagged bool) []byte {
	ip := make([]byte, 40)
	ip[0], ip[6] = 0x60, next
	return append(append(ether(0x86dd, tagged), ip...), udpHeader(port)...)
}

func ether(kind uint16, tagged bool) []byte {
	b := make([]byte, macsLen)
	if tagged {
		b = append(b, 0x81, 0, 0, 5)
	}
	return append(b, byte(kind>>8), byte(kind))
}

func udpHeader(port uint16) []byte {
	return []byte{0x12, 0x34, byte(port >> 8), byte(port), 0, 28, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
}

func TestRoceFilter(t *testing.T) {
	vm, err := bpf.NewVM(roceFilter(0))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		frame []byte
		want  bool
	}{
		"IPv4":              {udp4(0, 17, 0x4000, 4791, false), true},
		"IPv4 with options": {udp4(12, 17, 0, 4791, false), true},
		"IPv4 tagged":       {udp4(0, 17, 0, 4791, true), true},
		"IPv6":              {udp6(17, 4791, false), true},
		"IPv6 tagged":       {udp6(17, 4791, true), true},
		"other port":        {udp4(0, 17, 0, 4790, false), false},
		"other port, IPv6":  {udp6(17, 53, false), false},
		"TCP":               {udp4(0, 6, 0, 4791, false), false},
		"TCP over IPv6":     {udp6(6, 4791, true), false},
		"later fragment":    {udp4(0, 17, 0x00b9, 4791, false), false},
		"first fragment":    {udp4(0, 17, 0x2000, 4791, false), true},
		"IGMP":              {udp4(4, 2, 0, 0, false), true},
		"IGMP tagged":       {udp4(4, 2, 0, 0, true), true},
		"MLD":               {udp6(0, 0, false), true},
		"MLD tagged":        {udp6(0, 0, true), true},
		"ICMPv6":            {udp6(58, 4791, false), false},
		"ICMP":              {udp4(0, 1, 0, 4791, false), false},
		"ARP":               {append(ether(0x0806, false), make([]byte, 46)...), false},
		"tagged ARP":        {append(ether(0x0806, true), make([]byte, 46)...), false},
		"two tags":          {append(ether(0x8100, true), udp4(0, 17, 0, 4791, false)[macsLen:]...), false},
		"cut in UDP":        {udp4(0, 17, 0, 4791, false)[:36], false},
		"cut in IPv4":       {udp4(0, 17, 0, 4791, false)[:20], false},
		"cut in Ethernet":   {make([]byte, 13), false},
		"empty":             {nil, false},
	} {
		n, err := vm.Run(c.frame)
		if got := err == nil && n > 0; got != c.want {
			t.Errorf("%s: taken %v, want %v (%v)", name, got, c.want, err)
		}
	}
}

// With a further port, the filter takes datagrams to it, and still those of RoCEv2.
func TestRoceFilterWithAnotherPort(t *testing.T) {
	vm, err := bpf.NewVM(roceFilter(4792))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		frame []byte
		want  bool
	}{
		"RoCEv2":         {udp4(0, 17, 0, 4791, false), true},
		"RoCEv2, IPv6":   {udp6(17, 4791, true), true},
		"further port":   {udp4(4, 17, 0, 4792, false), true},
		"further tagged": {udp4(0, 17, 0, 4792, true), true},
		"other port":     {udp4(0, 17, 0, 4793, false), false},
		"TCP":            {udp4(0, 6, 0, 4792, false), false},
		"later fragment": {udp4(0, 17, 1, 4792, false), false},
		"IGMP":           {udp4(4, 2, 0, 0, false), true},
		"MLD":            {udp6(0, 0, true), true},
		"ARP":            {append(ether(0x0806, false), make([]byte, 46)...), false},
	} {
		n, err := vm.Run(c.frame)
		if got := err == nil && n > 0; got != c.want {
			t.Errorf("%s: taken %v, want %v (%v)", name, got, c.want, err)
		}
	}
}

func FuzzDecodeVnet(f *testing.F) {
	f.Add([]byte{1, 5, 42, 0, 0, 4, 34, 0, 6, 0}, 200)
	f.Fuzz(func(t *testing.T, h []byte, n int) {
		if len(h) < vnetLen || n < 0 || n > packetio.MaxFrame {
			return
		}
		fr := packetio.Frame{Data: make([]byte, n)}
		decodeVnet(h, &fr)
		if packets(&fr) == 0 {
			t.Error("a frame of no packets")
		}
		var out [vnetLen]byte
		encodeVnet(&out, &fr)
	})
}
