package layers

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// Both decoders read the same fields from the same bytes.
func TestAgreesWithWire(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		n := 64 * (1 + r.IntN(16))
		f := onerma.Frame{
			Eth:  wire.Ethernet{Dst: wire.MAC{2, 2}, Src: wire.MAC{2, 1}},
			IPv4: wire.IPv4{TTL: 64, Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2}},
			UDP:  wire.UDP{SrcPort: 4792},
			Header: onerma.Header{
				Kind: onerma.Data, Op: onerma.Op(1 + r.IntN(2)), Class: uint8(r.IntN(2)), Slot: uint16(r.Uint32()), Generation: r.Uint32(),
				At: uint16(64 * r.IntN(16)), Region: r.Uint32(), Offset: r.Uint64(), Length: 2048, PID: r.Uint32(), Counter: r.Uint64(), Ticket: r.Uint32(),
			},
		}
		b := f.AppendOpen(nil, n)
		for range n + onerma.TagLen {
			b = append(b, byte(r.Uint32()))
		}
		var ours onerma.Frame
		if err := onerma.ParseFrame(b, &ours); err != nil {
			t.Fatal(err)
		}
		m, ok := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default).Layer(LayerType).(*Message)
		if !ok {
			t.Fatalf("%v is no message for gopacket", &f)
		}
		theirs := onerma.Header{
			Kind: onerma.Kind(m.Kind), Op: onerma.Op(m.Operation), Class: m.Class, Slot: m.Slot, At: m.At, Generation: m.Generation,
			Region: m.Region, Offset: m.Offset, Length: m.Length, PID: m.PID, Counter: m.Counter, Ticket: m.Ticket,
		}
		if theirs != ours.Header || m.Version != 1 {
			t.Errorf("%v, want %v", &theirs, &ours.Header)
		}
		if !bytes.Equal(m.LayerPayload(), ours.Sealed) || !bytes.HasSuffix(ours.Sealed, m.Tag[:]) {
			t.Error("the body differs")
		}
	}
}

func TestShortMessage(t *testing.T) {
	p := gopacket.NewPacket(make([]byte, 59), LayerType, gopacket.Default)
	if p.ErrorLayer() == nil || !p.Metadata().Truncated {
		t.Errorf("59 bytes: %v", p)
	}
}
