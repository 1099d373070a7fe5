package netcache

import (
	"bytes"
	_ "embed" // of answer.hex
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// answerHex is what testdata/answer.py prints.
//
//go:embed testdata/answer.hex
var answerHex string

const value = "VALUE foo 0 5\r\nhello\r\nEND\r\n"

// An answer, and a GET with another port and number, have the bytes that a program outside of this project computes.
func TestPacketsGolden(t *testing.T) {
	var lines [][]byte
	for line := range strings.Lines(answerHex) {
		b, err := hex.DecodeString(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, b)
	}
	for c := range slices.Chunk(lines, 3) {
		var p packet
		f := packetio.Frame{Data: bytes.Clone(c[0])}
		if !p.parse(f.Data) || p.payload == nil || p.dstPort != 11211 || p.srcPort != 40000 || !p.intact(&f) {
			t.Fatalf("%+v", p)
		}
		if got := p.appendAnswer(nil, f.Data, []byte(value)); !bytes.Equal(got, c[1]) {
			t.Errorf("the answer is\n%x, not\n%x", got, c[1])
		}
		if p.renumber(&f, 0, 61007, 0x1234); !bytes.Equal(f.Data, c[2]) {
			t.Errorf("the probe is\n%x, not\n%x", f.Data, c[2])
		}
		for i := p.ip + 12; i < len(f.Data); i++ {
			if i >= p.ip+20 && !p.v6 || p.v6 && i >= p.ip+40 {
				g := packetio.Frame{Data: bytes.Clone(c[0])}
				g.Data[i] ^= 4
				var q packet
				if q.parse(g.Data) && q.payload != nil && q.intact(&g) {
					t.Errorf("byte %d may have any value", i)
				}
			}
		}
	}
}

// Fragments, other protocols, and packets whose lengths contradict each other have no payload; no frame is read
// behind its end.
func FuzzPackets(f *testing.F) {
	for line := range strings.Lines(answerHex) {
		b, _ := hex.DecodeString(strings.TrimSpace(line))
		f.Add(b)
		frag := bytes.Clone(b)
		frag[20] |= 0x20
		f.Add(frag)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p packet
		if !p.parse(b) {
			return
		}
		if p.payload != nil && (p.proto != protoUDP || !p.ports || p.later || p.l4+udpLen+len(p.payload) > len(b)) {
			t.Errorf("%x: %+v", b, p)
		}
		if len(p.payload) < headLen {
			return
		}
		g := packetio.Frame{Data: bytes.Clone(b)}
		was := p.intact(&g)
		p.renumber(&g, 2, 7, 8)
		var q packet
		if !q.parse(g.Data) || q.dstPort != 7 || q.intact(&g) != was {
			t.Errorf("%x becomes %x: intact was %v", b, g.Data, was)
		}
		out := p.appendAnswer(nil, b, []byte(value))
		if h := (packetio.Frame{Data: out}); !q.parse(out) || !q.intact(&h) || q.dst != p.src || q.srcPort != p.dstPort || !bytes.Equal(q.payload[headLen:], []byte(value)) {
			t.Errorf("the answer to %x is %x", b, out)
		}
	})
}

// Senders differ by address, family, VLAN, port and number. A packet of IPv6 without checksum is not intact.
func TestSenders(t *testing.T) {
	p := packet{src: [16]byte{10, 0, 0, 3}, srcPort: 5}
	seen := map[sender]bool{}
	for _, q := range []packet{p, {src: p.src, srcPort: 5, v6: true}, {src: p.src, srcPort: 5, vlan: 5}, {src: p.src, srcPort: 5, vlan: 5 << 12}, {src: p.src, srcPort: 6}, {dst: p.src, srcPort: 5}} {
		seen[q.sender(7)], seen[q.sender(8)] = true, true
	}
	if len(seen) != 12 {
		t.Errorf("%d senders", len(seen))
	}
	for _, line := range strings.Split(strings.TrimSpace(answerHex), "\n") {
		b, _ := hex.DecodeString(line)
		if !p.parse(b) {
			t.Fatal(line)
		}
		b[p.l4+6], b[p.l4+7] = 0, 0
		if got := p.intact(&packetio.Frame{Data: b}); got == p.v6 {
			t.Errorf("%x without checksum: intact %v", b, got)
		}
	}
}
