package telemetry

import (
	"encoding/hex"
	"net/netip"
	"testing"
)

func frame(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	macs = "020000000002020000000001"
	// UDP from 10.0.0.1:5000 to 10.0.0.2:4791, and TCP from fd00:77::5 port 1 to fd00:77::6 port 80.
	udp4 = "0800" + "4500001c0000000040110000" + "0a000001" + "0a000002" + "138812b700080000"
	tcp6 = "86dd" + "60000000001406" + "40" + "fd000077000000000000000000000005" + "fd000077000000000000000000000006" + "00010050" + "00000000000000005000000000000000"
	// The same UDP with options in the IP header, as a later fragment, and with a wrong header length.
	options  = "0800" + "4600001c0000000040110000" + "0a000001" + "0a000002" + "01010100" + "138812b700080000"
	fragment = "0800" + "4500001c0000000140110000" + "0a000001" + "0a000002" + "138812b700080000"
	broken   = "0800" + "4400001c0000000040110000" + "0a000001" + "0a000002" + "138812b700080000"
)

// The key of a frame has the headers that the rule asks for, and no others.
func TestKeys(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	c, d := netip.MustParseAddr("fd00:77::5"), netip.MustParseAddr("fd00:77::6")
	for _, x := range []struct {
		frame string
		by    By
		want  Key
		text  string
	}{
		{udp4, ByFlow, Key{Type: 0x800, Proto: 17, Src: a, Dst: b, SrcPort: 5000, DstPort: 4791}, "10.0.0.1:5000 > 10.0.0.2:4791 udp"},
		{"81000007" + udp4, ByFlow, Key{Type: 0x800, Proto: 17, Src: a, Dst: b, SrcPort: 5000, DstPort: 4791}, "10.0.0.1:5000 > 10.0.0.2:4791 udp"},
		{options, ByFlow, Key{Type: 0x800, Proto: 17, Src: a, Dst: b, SrcPort: 5000, DstPort: 4791}, "10.0.0.1:5000 > 10.0.0.2:4791 udp"},
		{fragment, ByFlow, Key{Type: 0x800, Proto: 17, Src: a, Dst: b}, "10.0.0.1 > 10.0.0.2 udp"},
		{broken, ByFlow, Key{Type: 0x800}, "ipv4"},
		{udp4, ByPair, Key{Type: 0x800, Src: a, Dst: b}, "10.0.0.1 > 10.0.0.2"},
		{udp4, BySource, Key{Type: 0x800, Src: a}, "10.0.0.1 > any"},
		{udp4, ByDestination, Key{Type: 0x800, Dst: b}, "any > 10.0.0.2"},
		{udp4, ByService, Key{Type: 0x800, Proto: 17, DstPort: 4791}, "udp port 4791"},
		{udp4, ByProtocol, Key{Type: 0x800, Proto: 17}, "udp"},
		{tcp6, ByFlow, Key{Type: 0x86dd, Proto: 6, Src: c, Dst: d, SrcPort: 1, DstPort: 80}, "fd00:77::5:1 > fd00:77::6:80 tcp"},
		{tcp6, ByService, Key{Type: 0x86dd, Proto: 6, DstPort: 80}, "tcp port 80"},
		{"0806" + "0001", ByFlow, Key{Type: 0x806}, "arp"},
		{"88b5", ByPair, Key{Type: 0x88b5}, "ethertype 0x88b5"},
	} {
		k := Parse(frame(t, macs+x.frame), x.by)
		if text := k.Text(netip.Addr.String); k != x.want || text != x.text {
			t.Errorf("%s by %v: %+v, %q; want %+v, %q", x.frame, x.by, k, text, x.want, x.text)
		}
	}
}

// The hash of a key, its counters, and the random numbers of a sample are part of what the memory of
// servers means to its readers. They were computed by another program.
func TestGoldenPlaces(t *testing.T) {
	flow := Parse(frame(t, macs+udp4), ByFlow)
	source := Parse(frame(t, macs+tcp6), BySource)
	source.Proto, source.SrcPort, source.DstPort = 6, 1, 80
	other := Key{Type: 0x88b5}
	for _, x := range []struct {
		key    Key
		hash   uint64
		places []int
	}{
		{flow, 0x507d5230a3107225, []int{813, 575, 317, 962, 799}},
		{other, 0xd38fcc88ce1ec147, []int{584, 740, 791, 35, 505}},
		{source, 0xba666e79efba25e5, nil},
	} {
		if got := x.key.Hash(); got != x.hash {
			t.Errorf("%+v: %#x, want %#x", x.key, got, x.hash)
		}
		s := Sketch{Rows: 5, Width: 1024}
		for row, want := range x.places {
			if got := s.Slot(x.hash, row); got != row*1024+want {
				t.Errorf("%+v, row %d: %d, want %d", x.key, row, got-row*1024, want)
			}
		}
	}
	s := NewSampler(4, true, 7)
	for i, want := range []int{0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1} {
		if got := s.Take(1); got != want {
			t.Errorf("packet %d: %d", i, got)
		}
	}
}

// No frame makes Parse panic, and a key of fewer headers is the key of more headers without them.
func FuzzParse(f *testing.F) {
	for _, text := range []string{udp4, tcp6, options, fragment, broken, "81000007" + udp4, "88b5"} {
		f.Add(frame(f, macs+text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		whole := Parse(b, ByFlow)
		for by := range Names {
			k := Parse(b, By(by))
			if k != whole.reduce(By(by)) {
				t.Errorf("%x by %v: %+v of %+v", b, By(by), k, whole)
			}
			if k.Text(netip.Addr.String) == "" {
				t.Errorf("%+v has no text", k)
			}
		}
	})
}

// By turns exactly one packet of N is counted, however the packets are bundled; by chance each
// packet is counted with the probability 1/N, and packets that follow one another are independent.
func TestSampler(t *testing.T) {
	for _, every := range []uint64{0, 1, 2, 7, 100} {
		turns, bundled, chance := NewSampler(every, false, 0), NewSampler(every, false, 0), NewSampler(every, true, 3)
		const n = 100_000
		sums, pairs, last := [3]int{}, 0, 0
		for range n {
			sums[0] += turns.Take(1)
			x := chance.Take(1)
			sums[2] += x
			pairs += x * last
			last = x
		}
		for range n / 10 {
			sums[1] += bundled.Take(10)
		}
		e := max(1, int(every))
		if sums[0] != n/e || sums[1] != n/e {
			t.Errorf("1 of %d: %v", every, sums)
		}
		for _, x := range [][2]int{{sums[2], n / e}, {pairs, n / e / e}} {
			if off := x[0] - x[1]; off*off > 25*x[1]+25 { // five standard deviations
				t.Errorf("1 of %d by chance: %d, want about %d", every, x[0], x[1])
			}
		}
	}
}
