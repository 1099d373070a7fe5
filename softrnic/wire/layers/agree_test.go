package layers_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/capture/crosscheck"
	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// For every frame of every golden capture, gopacket with these layers and package wire decode the
// same value of every field.
func TestAgreeOnGolden(t *testing.T) {
	names, err := filepath.Glob("../testdata/golden/*.pcap")
	if err != nil {
		t.Fatal(err)
	}
	frames := 0
	for _, name := range names {
		eachPacket(t, name, func(data []byte, offset int64) {
			if err := crosscheck.Frame(data); err != nil {
				t.Errorf("%s, byte %d: %v", name, offset, err)
			}
			frames++
		})
	}
	if frames != 2206 {
		t.Errorf("%d frames, want 2206", frames)
	}
}

func eachPacket(t *testing.T, name string, f func(data []byte, offset int64)) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := pcapng.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for {
		var p pcapng.Packet
		if err := r.Next(&p); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		f(p.Data, p.Offset)
	}
}

// Both agree on all 256 opcode numbers, over IPv4 and IPv6, with and without a tag, with every pad,
// with all flags set and with random fields, which no capture has.
func TestAgreeOnEveryOpcode(t *testing.T) {
	for op := range 256 {
		for variant := range 16 {
			if !wire.Opcode(op).Known() && variant != op%16 {
				continue // unknown opcodes are all handled alike
			}
			f := sample(wire.Opcode(op), variant)
			data := f.AppendTo(nil)
			if err := crosscheck.Frame(data); err != nil {
				t.Errorf("%v, variant %d: %v", wire.Opcode(op), variant, err)
			}
		}
	}
}

// sample makes a frame with a different value in every field. The bits of variant are IPv6, tag,
// and pad.
func sample(op wire.Opcode, variant int) *wire.Frame {
	f := &wire.Frame{
		Eth: wire.Ethernet{Dst: wire.MAC{2, 1, 2, 3, 4, 5}, Src: wire.MAC{2, 6, 7, 8, 9, 10}, Tagged: variant&2 != 0, TCI: 0xb123},
		V6:  variant&1 != 0,
		IPv4: wire.IPv4{
			TOS: 0x6a, ID: 0xabcd, DF: variant&4 != 0, TTL: 63, Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2},
		},
		IPv6: wire.IPv6{TrafficClass: 0x6b, FlowLabel: 0xabcde, HopLimit: 62, Src: [16]byte{0xfd, 15: 1}, Dst: [16]byte{0xfd, 15: 2}},
		UDP:  wire.UDP{SrcPort: 0xd221, Checksum: 0x1234},
	}
	f.Packet = wire.Packet{
		BTH: wire.BTH{
			Opcode: op, Solicited: variant&4 != 0, MigReq: variant&8 != 0, PKey: 0x8001, Version: uint8(variant),
			FECN: variant&1 != 0, BECN: variant&2 != 0, Reserved6: 0x2b, DestQP: 0x123456, AckReq: variant&1 == 0,
			Reserved7: 0x55, PSN: 0xfedcba,
		},
		XRCETH:    wire.XRCETH{Reserved: 0x92, SRQN: 0x939495},
		FETH:      wire.FETH{Reserved: 0x2a2b2c2, Level: 2, Placement: 0xd},
		RETH:      wire.RETH{VA: 0x0102030405060708, RKey: 0x11121314, Length: 0x21222324},
		AtomicETH: wire.AtomicETH{VA: 0x3132333435363738, RKey: 0x41424344, SwapOrAdd: 0x5152535455565758, Compare: 0x6162636465666768},
		Masks:     wire.AtomicMasks{Swap: 0x696a6b6c6d6e6f70, CompareOrBoundary: 0x797a7b7c7d7e7f80},
		AETH:      wire.AETH{Syndrome: 0x6f, MSN: 0x717273},
		DETH:      wire.DETH{QKey: 0x81828384, Reserved: 0x91, SrcQP: 0xa1a2a3},
		AtomicAck: 0xb1b2b3b4b5b6b7b8, ImmDt: 0xc1c2c3c4, IETH: 0xd1d2d3d4, CNP: wire.CNPReserved{0: 0xe1, 15: 0xe2},
		Payload: bytes.Repeat([]byte{0xf1}, 61+variant/4),
	}
	return f
}

// FuzzAgree: gopacket decodes every frame that package wire decodes, to the same values.
func FuzzAgree(f *testing.F) {
	for op := range 256 {
		if wire.Opcode(op).Known() {
			f.Add(sample(wire.Opcode(op), op).AppendTo(nil))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var frame wire.Frame
		if wire.ParseFrame(data, &frame) != nil {
			return
		}
		if err := crosscheck.Frame(data); err != nil {
			t.Fatal(err)
		}
	})
}
