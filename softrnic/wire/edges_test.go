package wire

import (
	"bytes"
	"errors"
	"testing"
)

// The reserved flag of an IPv4 header is kept, beside the others, and the checksum covers it.
func TestFlagsOfIPv4(t *testing.T) {
	for _, reserved := range []bool{false, true} {
		for _, df := range []bool{false, true} {
			h := IPv4{Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2}, TTL: 64, Protocol: 17, ID: 7, DF: df, Reserved: reserved}
			b := h.AppendTo(nil, 0)
			var got IPv4
			if err := got.Parse(b); err != nil || got.Reserved != reserved || got.DF != df || got.ID != 7 || checksum(b) != 0 {
				t.Errorf("reserved %v, DF %v: %+v, %v", reserved, df, got, err)
			}
			if want := map[bool]byte{true: 0x80}[reserved] | map[bool]byte{true: 0x40}[df]; b[6] != want {
				t.Errorf("reserved %v, DF %v: flags %#x", reserved, df, b[6])
			}
		}
	}
}

// What is not the packet as it was received, or is too short for it, is no former packet: the frame is summed.
func TestFormerPackets(t *testing.T) {
	payload := bytes.Repeat([]byte{5}, 1024)
	f := new(Frame)
	f.IPv4 = IPv4{Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2}, TTL: 64}
	f.BTH = BTH{Opcode: RCSendOnly, DestQP: 5, PSN: 6}
	f.Payload = payload
	var s Sealer
	old := s.AppendFrame(nil, f)
	var now Frame
	if err := ParseFrame(old, &now); err != nil {
		t.Fatal(err)
	}
	if _, _, _, same := now.unchanged(old); !same {
		t.Error("the packet as it was received is taken for another one")
	}
	for what, b := range map[string][]byte{
		"nothing": nil, "a header": old[:30], "a cut packet": old[:len(old)-8], "no IP packet": make([]byte, len(old)), "a copy": bytes.Clone(old),
	} {
		if _, _, _, same := now.unchanged(b); same {
			t.Errorf("%s is the former packet", what)
		}
		now.BTH.PSN = 9
		want := s.AppendFrame(nil, &now)
		if got := s.AppendChanged(nil, &now, b); !bytes.Equal(got, want) {
			t.Errorf("%s: the changed frame is not that without a former one", what)
		}
	}
	empty := now
	empty.Payload = nil
	if _, _, _, same := empty.unchanged(old); same {
		t.Error("a packet without payload has that of the former one")
	}
}

// A message of IGMP has at least 8 bytes behind the IP header.
func TestShortIGMP(t *testing.T) {
	for n := range 8 {
		ip := IPv4{Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{224, 0, 0, 22}, TTL: 1, Protocol: protocolIGMP}
		eth := Ethernet{Type: EtherTypeIPv4}
		b := ip.AppendTo(eth.AppendTo(nil), n)
		b = append(b, make([]byte, n)...)
		var m Membership
		if err := m.Parse(append(b, make([]byte, 40)...)); !errors.Is(err, ErrNotMembership) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
