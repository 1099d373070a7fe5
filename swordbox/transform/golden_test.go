package transform_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	roce "github.com/rdmalab/rdmalab/softrnic/wire/layers"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// golden is a file of testdata: a packet before and after a transformation, written by hand with a
// comment for each field. Another program computed its checksums.
type golden struct{ in, out []byte }

func readGolden(t testing.TB, path string) (g golden) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var to *[]byte
	for line := range strings.Lines(string(b)) {
		switch {
		case strings.HasPrefix(line, "-- in"):
			to = &g.in
		case strings.HasPrefix(line, "-- out"):
			to = &g.out
		case to != nil:
			digits, _, _ := strings.Cut(line, "#")
			field, err := hex.DecodeString(strings.Join(strings.Fields(digits), ""))
			if err != nil {
				t.Fatalf("%s: %q: %v", path, line, err)
			}
			*to = append(*to, field...)
		}
	}
	return g
}

var (
	clientMAC = wire.MAC{2, 0, 0, 0, 0, 1}
	serverMAC = wire.MAC{2, 0, 0, 0, 0, 2}
	switchMAC = wire.MAC{2, 0, 0, 0, 0, 0xfe}
)

// ends returns addresses whose last bytes are src and dst.
func ends(src, dst byte) (v4 wire.IPv4, v6 wire.IPv6) {
	v4 = wire.IPv4{Src: [4]byte{10, 0, 0, src}, Dst: [4]byte{10, 0, 0, dst}}
	v6.Src, v6.Dst = [16]byte{0: 0xfd, 15: src}, [16]byte{0: 0xfd, 15: dst}
	return v4, v6
}

// shared is the path of the switch's connection to the server.
func shared(v6 bool) *transform.Path {
	p := &transform.Path{Eth: wire.Ethernet{Dst: serverMAC, Src: switchMAC}, V6: v6, SrcPort: 0xd007, PKey: 0xffff, MigReq: true, DestQP: 0x77}
	p.IPv4, p.IPv6 = ends(0xfe, 2)
	p.IPv4.TOS, p.IPv6.FlowLabel = 0x68|2, 0x777
	return p
}

// client is the path of the answers to the client.
func client(v6 bool) *transform.Path {
	p := &transform.Path{Eth: wire.Ethernet{Dst: clientMAC, Src: serverMAC}, V6: v6, SrcPort: 0xc002, PKey: 0xffff, DestQP: 0x2a}
	p.IPv4, p.IPv6 = ends(2, 1)
	p.IPv4.TOS, p.IPv6.TrafficClass = 0x68|1, 0x68|1
	return p
}

func tagged(p *transform.Path) *transform.Path {
	p.Eth.Tagged, p.Eth.TCI = true, 0x6064
	return p
}

// transformations by the name of their file. Those that make a new packet do not use f.
var transformations = map[string]func(f *wire.Frame){
	"cas_to_write":          func(f *wire.Frame) { write(f, shared(false), 4711, 0x0102030405060708) },
	"cas_to_write_v6":       func(f *wire.Frame) { write(f, shared(true), 4711, 0x0102030405060708) },
	"cas_to_write_vlan":     func(f *wire.Frame) { write(f, tagged(shared(false)), 4711, 0x0102030405060708) },
	"faa_to_write":          func(f *wire.Frame) { write(f, shared(false), 0, 0x0102030405060718) },
	"cas_to_empty_write":    func(f *wire.Frame) { transform.ToEmptyWrite(f); transform.Request(f, shared(false), 0xffffff) },
	"cas_to_empty_write_v6": func(f *wire.Frame) { transform.ToEmptyWrite(f); transform.Request(f, shared(true), 0xffffff) },
	"read_moved":            func(f *wire.Frame) { transform.Request(f, shared(false), 4712) },
	"write_moved":           func(f *wire.Frame) { transform.Request(f, shared(false), 4713) },

	"ack_to_atomic_ack":      func(f *wire.Frame) { answer(f, client(false)) },
	"ack_to_atomic_ack_v6":   func(f *wire.Frame) { answer(f, client(true)) },
	"ack_to_atomic_ack_vlan": func(f *wire.Frame) { answer(f, tagged(client(false))) },
	"read_response":          func(f *wire.Frame) { transform.Response(f, client(false), 13, 6) },
	"read_response_middle":   func(f *wire.Frame) { transform.Response(f, client(true), 0xffffff, 6) },
	"nak_moved":              func(f *wire.Frame) { transform.Response(f, client(false), 14, 6) },

	"made_ack":           func(f *wire.Frame) { client(false).ACK(f, 12, 1<<24) },
	"made_ack_v6":        func(f *wire.Frame) { client(true).ACK(f, 12, 1<<24-1) },
	"made_ack_vlan":      func(f *wire.Frame) { tagged(client(false)).ACK(f, 12, 1) },
	"made_atomic_ack":    func(f *wire.Frame) { client(false).AtomicACK(f, 12, 5, 0x0102030405060708) },
	"made_nak_sequence":  func(f *wire.Frame) { client(false).NAK(f, 0x800000, 5, wire.NakPSNSequence) },
	"made_nak_invalid":   func(f *wire.Frame) { client(false).NAK(f, 0x800000, 5, wire.NakInvalid) },
	"made_nak_access":    func(f *wire.Frame) { client(false).NAK(f, 0x800000, 5, wire.NakRemoteAccess) },
	"made_nak_operation": func(f *wire.Frame) { client(false).NAK(f, 0x800000, 5, wire.NakRemoteOp) },
	"made_empty_write":   func(f *wire.Frame) { shared(false).EmptyWrite(f, 4714, 0x7f0000001008, 0x12345678) },
}

func write(f *wire.Frame, to *transform.Path, psn wire.PSN, value uint64) {
	transform.ToWrite(f, value, new([transform.WordLen]byte))
	transform.Request(f, to, psn)
}

// answer replaces the received ACK by the answer of an atomic.
func answer(f *wire.Frame, to *transform.Path) { to.AtomicACK(f, 12, 5, 0xbeef) }

// Every transformation gives the bytes that were written out by hand.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) != len(transformations) {
		t.Fatalf("%d files and %d transformations, %v", len(files), len(transformations), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			g := readGolden(t, file)
			f := dirty()
			if g.in != nil {
				independent(t, g.in)
				if err := wire.ParseFrame(g.in, &f); err != nil {
					t.Fatal(err)
				}
				f.UDP.Checksum = 0x1234 // as checksum offload leaves it
			}
			transformations[name](&f)
			if got := f.AppendTo(nil); !bytes.Equal(got, g.out) {
				t.Errorf("got\n%x want\n%x", got, g.out)
			}
			independent(t, g.out)
		})
	}
}

// dirty returns a frame with other values in all fields.
func dirty() wire.Frame {
	f := wire.Frame{V6: true, UDP: wire.UDP{Checksum: 5}}
	f.BTH = wire.BTH{Opcode: wire.RCSendOnlyImm, Solicited: true, AckReq: true, FECN: true, Reserved6: 3, Reserved7: 3, Version: 1}
	f.RETH.VA, f.AtomicAck, f.Payload = 1, 2, []byte("left over")
	return f
}

// independent checks with a decoder of another project that a packet is well-formed to its last
// byte and has a correct ICRC.
func independent(t *testing.T, b []byte) {
	t.Helper()
	p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default)
	if e := p.ErrorLayer(); e != nil {
		t.Fatalf("%x: %v", b, e.Error())
	}
	sum, err := roce.Sum(p)
	if icrc, ok := p.Layer(roce.LayerTypeICRC).(*roce.ICRC); !ok || err != nil || icrc.Value != sum {
		t.Errorf("%x: ICRC should be %#x (%v)", b, sum, err)
	}
}

// The lengths of the packets are those of the table in the paper.
func TestLengths(t *testing.T) {
	for name, want := range map[string]struct{ ip, udp, frame int }{
		"cas_to_write": {68, 48, 82}, "cas_to_empty_write": {60, 40, 74}, "faa_to_write": {68, 48, 82},
		"ack_to_atomic_ack": {56, 36, 70}, "made_ack": {48, 28, 62}, "made_atomic_ack": {56, 36, 70},
		"made_nak_sequence": {48, 28, 62}, "read_moved": {60, 40, 74}, "read_response": {48 + 16, 28 + 16, 62 + 16},
		"write_moved": {60 + 16, 40 + 16, 74 + 16},
	} {
		f := dirty()
		if g := readGolden(t, filepath.Join("testdata", name+".txt")); g.in != nil {
			if err := wire.ParseFrame(g.in, &f); err != nil {
				t.Fatal(err)
			}
		}
		transformations[name](&f)
		b := f.AppendTo(nil)
		if ip, udp := int(binary.BigEndian.Uint16(b[16:])), int(binary.BigEndian.Uint16(b[38:])); ip != want.ip || udp != want.udp || len(b) != want.frame {
			t.Errorf("%s: IP %d, UDP %d, frame %d bytes, want %+v", name, ip, udp, len(b), want)
		}
	}
}
