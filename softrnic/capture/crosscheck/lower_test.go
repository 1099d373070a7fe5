package crosscheck

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/softrnic/wire/dissect"
	roce "github.com/rdmalab/rdmalab/softrnic/wire/layers"
)

// The layers below RoCEv2 are those that gopacket's own decoders find, for every frame of every golden
// capture: same bytes of each layer, and same fields. So package wire is compared with a decoder of
// others, too, without its tables in each process.
func TestLowerLayersAreThoseOfGopacket(t *testing.T) {
	names, err := filepath.Glob("../../wire/testdata/golden/*.pcap")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	frames := 0
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := pcapng.NewReader(file)
		if err != nil {
			t.Fatal(err)
		}
		for {
			var p pcapng.Packet
			if err := r.Next(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			frames++
			sameLayers(t, p.Data)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if frames < 2000 {
		t.Errorf("%d frames", frames)
	}
}

func sameLayers(t *testing.T, data []byte) {
	t.Helper()
	ours := gopacket.NewPacket(data, dissect.LayerTypeEthernet, gopacket.Default)
	theirs := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.Default)
	if theirs.Layer(roce.LayerTypeBTH) == nil {
		return
	}
	a, b := ours.Layers(), theirs.Layers()
	if len(a) != len(b) {
		t.Fatalf("%x: layers %v, gopacket has %v", data, ours, theirs)
	}
	for i := range a {
		if !bytes.Equal(a[i].LayerContents(), b[i].LayerContents()) || !bytes.Equal(a[i].LayerPayload(), b[i].LayerPayload()) {
			t.Errorf("%x: layer %d differs", data, i)
		}
		same := true
		switch x := a[i].(type) {
		case *dissect.Ethernet:
			y := b[i].(*layers.Ethernet)
			same = bytes.Equal(x.Dst[:], y.DstMAC) && bytes.Equal(x.Src[:], y.SrcMAC) && x.Type == uint16(y.EthernetType)
		case *dissect.Tag:
			y := b[i].(*layers.Dot1Q)
			same = x.TCI&0xfff == y.VLANIdentifier && uint8(x.TCI>>13) == y.Priority && x.Type == uint16(y.Type)
		case *dissect.IPv4:
			y := b[i].(*layers.IPv4)
			same = bytes.Equal(x.Src[:], y.SrcIP) && bytes.Equal(x.Dst[:], y.DstIP) && x.TOS == y.TOS && x.ID == y.Id && x.TTL == y.TTL &&
				x.Length == y.Length && x.Protocol == uint8(y.Protocol) && x.DF == (y.Flags&layers.IPv4DontFragment != 0) &&
				x.Reserved == (y.Flags&layers.IPv4EvilBit != 0)
		case *dissect.IPv6:
			y := b[i].(*layers.IPv6)
			same = bytes.Equal(x.Src[:], y.SrcIP) && bytes.Equal(x.Dst[:], y.DstIP) && x.TrafficClass == y.TrafficClass &&
				x.FlowLabel == y.FlowLabel && x.Length == y.Length && x.NextHeader == uint8(y.NextHeader) && x.HopLimit == y.HopLimit
		case *dissect.UDP:
			y := b[i].(*layers.UDP)
			same = x.SrcPort == uint16(y.SrcPort) && x.DstPort == uint16(y.DstPort) && x.Length == y.Length && x.Checksum == y.Checksum
		}
		if !same {
			t.Errorf("%x: %+v, gopacket has %+v", data, a[i], b[i])
		}
	}
}

// Damaged headers of the lower layers give an error or a shorter packet, and no panic.
func TestDamagedLowerLayers(t *testing.T) {
	whole := append(append(make([]byte, 12), 0x81, 0, 0, 5, 8, 0), make([]byte, 60)...)
	copy(whole[18:], []byte{0x45, 0, 0, 60})
	whole[27] = 17
	for n := range whole {
		for bit := range 8 {
			b := bytes.Clone(whole)
			b[n] ^= 1 << bit
			gopacket.NewPacket(b, dissect.LayerTypeEthernet, gopacket.Default)
			gopacket.NewPacket(b[:n], dissect.LayerTypeEthernet, gopacket.Default)
		}
	}
}
