package wire

import (
	"bytes"
	"errors"
	"testing"
)

// damageFrames are the intact frames of the tests of damage: IPv4 and IPv6, with and without a tag.
func damageFrames() [][]byte {
	var out [][]byte
	for _, v6 := range []bool{false, true} {
		for _, tagged := range []bool{false, true} {
			f := Frame{
				Eth: Ethernet{Tagged: tagged, TCI: 5}, V6: v6,
				IPv4: IPv4{TTL: 64, Src: [4]byte{10, 77, 0, 1}, Dst: [4]byte{10, 77, 0, 2}},
				IPv6: IPv6{HopLimit: 64, Src: [16]byte{0xfd, 15: 1}, Dst: [16]byte{0xfd, 15: 2}},
				UDP:  UDP{SrcPort: 0xc123},
			}
			f.BTH.Opcode, f.BTH.DestQP, f.BTH.PSN = RCSendOnly, 0x11, 7
			f.Payload = []byte("payload.")
			out = append(out, f.AppendTo(nil))
		}
	}
	return out
}

// isHidden reports whether b is a RoCEv2 packet that looks like another frame because of one wrong bit.
func isHidden(b, scratch []byte) (hidden bool, next []byte) {
	found, next := Unhidden(b, scratch)
	return found && CheckICRC(next), next
}

// Each wrong bit behind the Ethernet header shows: the packet cannot be parsed, its ICRC is wrong, its
// IP header is damaged, or the bit hides it. Bits that routers may change are not damage.
func TestEachWrongBitShows(t *testing.T) {
	var scratch []byte
	for _, good := range damageFrames() {
		var g Frame
		if err := ParseFrame(good, &g); err != nil || DamagedIP(good) {
			t.Fatal(err)
		}
		for bit := g.Eth.Len() * 8; bit < len(good)*8; bit++ {
			b := bytes.Clone(good)
			b[bit/8] ^= 1 << (bit % 8)
			before := bytes.Clone(b)
			var f Frame
			err := ParseFrame(b, &f)
			var hidden bool
			hidden, scratch = isHidden(b, scratch)
			if err == nil && hidden {
				t.Errorf("bit %d of byte %d: a RoCEv2 packet is hidden", bit%8, bit/8)
			}
			if errors.Is(err, ErrNotRoCE) && !DamagedIP(b) && !hidden {
				t.Errorf("bit %d of byte %d: the packet is none, and nothing shows the damage", bit%8, bit/8)
			}
			if !bytes.Equal(b, before) {
				t.Fatalf("bit %d of byte %d: Unhidden has changed the frame", bit%8, bit/8)
			}
		}
	}
}

// A datagram to a port that differs in one bit is hidden only if it is an intact RoCEv2 packet apart
// from this bit. Frames that end anywhere are neither hidden nor a panic.
func TestOtherFramesAreNotHidden(t *testing.T) {
	for _, good := range damageFrames() {
		var g Frame
		if err := ParseFrame(good, &g); err != nil {
			t.Fatal(err)
		}
		port := len(good) - int(g.UDP.Length) + 3
		other := bytes.Clone(good)
		other[port] ^= 2
		if hidden, _ := isHidden(other, nil); !hidden {
			t.Error("a wrong bit of the port does not hide the packet")
		}
		other[len(other)-5]++ // a byte of the payload
		if hidden, _ := isHidden(other, nil); hidden {
			t.Error("a datagram with other bytes is taken for a RoCEv2 packet")
		}
		two := bytes.Clone(good)
		two[port] ^= 3
		if hidden, _ := isHidden(two, nil); hidden {
			t.Error("two wrong bits")
		}
		for n := range good {
			short := good[:n:n]
			DamagedIP(short)
			if hidden, _ := isHidden(short, nil); hidden {
				t.Errorf("%d bytes of a frame are hidden", n)
			}
		}
	}
}
