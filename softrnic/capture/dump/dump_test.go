package dump

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// start is 2026-11-20 12:00:00.000000001 UTC in nanoseconds since 1970.
const start = 1_795_176_000_000_000_001

func testFrame() *wire.Frame {
	return &wire.Frame{
		Eth:  wire.Ethernet{Src: wire.MAC{2, 5: 1}, Dst: wire.MAC{2, 5: 2}},
		IPv4: wire.IPv4{ID: 9, TTL: 64, Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2}},
		UDP:  wire.UDP{SrcPort: 0xd221},
		Packet: wire.Packet{
			BTH:     wire.BTH{Opcode: wire.RCWriteOnlyImm, PKey: wire.DefaultPKey, DestQP: 0x11, PSN: 7, AckReq: true, Solicited: true},
			RETH:    wire.RETH{VA: 0x7f00_0000_1000, RKey: 0xabc, Length: 5},
			ImmDt:   0xc0ffee,
			Payload: []byte("hello"),
		},
	}
}

// capture writes a file with one packet of every kind.
func capture(t *testing.T) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := pcapng.NewWriter(&file)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cn0 up", ""} {
		if _, err := w.AddInterface(name, pcapng.Ethernet); err != nil {
			t.Fatal(err)
		}
	}
	now := int64(start)
	add := func(id int, data []byte, comment string) {
		if err := w.WritePacket(id, now, data, comment); err != nil {
			t.Fatal(err)
		}
		now += 1_000_000_500
	}
	good := testFrame()
	add(0, good.AppendTo(nil), "")

	bad := good.AppendTo(nil)
	bad[len(bad)-9]++ // a byte of payload
	add(0, bad, "bit flipped by f1\nand \x1b[31mmore")

	odd := testFrame()
	odd.V6, odd.Eth.Tagged, odd.Eth.TCI = true, true, 0x6005
	odd.IPv6 = wire.IPv6{TrafficClass: 3, HopLimit: 1, Src: [16]byte{0xfd, 15: 1}, Dst: [16]byte{0xfd, 15: 2}}
	odd.Packet = wire.Packet{
		BTH:  wire.BTH{Opcode: wire.UDSendOnly, PKey: 0x7fff, Version: 1, DestQP: 1},
		DETH: wire.DETH{QKey: 0x80010000, SrcQP: 0x22},
	}
	add(1, odd.AppendTo(nil), "")

	short := good.AppendTo(nil)
	short[17]-- // IPv4 total length
	short[25]++ // and the header checksum
	add(1, short, "")

	arp := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 6}, make([]byte, 28)...)
	add(1, arp, "")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func run(t *testing.T, file []byte, c Config) (string, Stats, error) {
	t.Helper()
	var out strings.Builder
	d, err := New(&out, c)
	if err != nil {
		t.Fatal(err)
	}
	err = d.Dump("x.pcapng", bytes.NewReader(file))
	return out.String(), d.Stats, err
}

const (
	goodLine  = "0.000000000 [cn0 up] 10.0.0.1 > 10.0.0.2 RC_WRITE_ONLY_IMM qp=0x11 psn=0x000007 va=0x7f0000001000 rkey=0xabc len=5 imm=0xc0ffee payload=5 ackreq solicited len=86 icrc=ok\n"
	badLine   = "1.000000500 [cn0 up] 10.0.0.1 > 10.0.0.2 RC_WRITE_ONLY_IMM qp=0x11 psn=0x000007 va=0x7f0000001000 rkey=0xabc len=5 imm=0xc0ffee payload=5 ackreq solicited len=86 icrc=bad # bit flipped by f1 and  [31mmore\n"
	oddLine   = "2.000001000 fd00::1 > fd00::2 UD_SEND_ONLY qp=0x1 psn=0x000000 qkey=0x80010000 srcqp=0x22 payload=0 tos=0x3 vlan=5 pkey=0x7fff tver=1 len=90 icrc=ok\n"
	shortLine = "3.000001500 10.0.0.1 > 10.0.0.2 malformed UDP: inconsistent length: 52, want 51 len=86\n"
	arpLine   = "4.000002000 02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff ARP len=42\n"
)

func TestText(t *testing.T) {
	got, stats, err := run(t, capture(t), Config{Filter: Filter{Other: true}})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(goodLine+badLine+oddLine+shortLine+arpLine, got); d != "" {
		t.Error(d)
	}
	if want := (Stats{RoCE: 4, Malformed: 1, BadICRC: 1, Other: 1, Shown: 5}); stats != want || stats.Bad() != 2 {
		t.Errorf("stats %+v, want %+v", stats, want)
	}
	if got, want := stats.String(), "4 RoCEv2 packets: 2 good, 1 with a wrong ICRC, 1 malformed; 1 other frames; 5 shown"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTimeOfDay(t *testing.T) {
	got, _, err := run(t, capture(t), Config{TimeOfDay: true})
	if err != nil || !strings.HasPrefix(got, "12:00:00.000000001 [cn0 up] ") {
		t.Errorf("%v, %s", err, got)
	}
}

// A filter hides packets, but never a malformed one.
func TestFilter(t *testing.T) {
	qpn, srcQP, psn := wire.QPN(0x11), wire.QPN(0x22), wire.PSN(0)
	for _, tc := range []struct {
		name   string
		filter Filter
		want   string
	}{
		{"none", Filter{}, goodLine + badLine + oddLine + shortLine},
		{"opcode pattern", Filter{Opcodes: []string{"ud_*", "CNP"}}, oddLine},
		{"qpn", Filter{QPN: &qpn}, goodLine + badLine},
		{"source qpn", Filter{QPN: &srcQP}, oddLine},
		{"psn", Filter{PSN: &psn}, oddLine},
		{"host", Filter{Host: netip.MustParseAddr("fd00::2")}, oddLine},
		{"interface", Filter{Interface: "cn0 up"}, goodLine + badLine},
		{"malformed host", Filter{Bad: true, Host: netip.MustParseAddr("10.0.0.2")}, badLine + shortLine},
		{"bad", Filter{Bad: true, Other: true}, badLine + shortLine},
		{"commented", Filter{Commented: true}, badLine},
		{"other with RoCEv2 filter", Filter{Other: true, QPN: &qpn}, goodLine + badLine},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, stats, err := run(t, capture(t), Config{Filter: tc.filter})
			if d := cmp.Diff(tc.want, got); d != "" || err != nil {
				t.Errorf("%v\n%s", err, d)
			}
			if stats.Bad() != 2 || stats.Shown != strings.Count(tc.want, "\n") {
				t.Errorf("stats %+v", stats)
			}
		})
	}
	if _, err := New(io.Discard, Config{Filter: Filter{Opcodes: []string{"RC_*", "RC_WRIET*"}}}); !errors.Is(err, wire.ErrOpcode) {
		t.Errorf("a pattern that matches nothing: %v", err)
	}
	if _, err := New(io.Discard, Config{Filter: Filter{Opcodes: []string{"RC_["}}}); !errors.Is(err, wire.ErrOpcode) {
		t.Errorf("a broken pattern: %v", err)
	}
}

func TestJSON(t *testing.T) {
	got, _, err := run(t, capture(t), Config{JSON: true, Filter: Filter{Other: true}})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(got), "\n")
	want := []string{
		`{"file":"x.pcapng","offset":124,"time":"2026-11-20T12:00:00.000000001Z","interface":"cn0 up","length":86,"kind":"roce",` +
			`"srcMac":"02:00:00:00:00:01","dstMac":"02:00:00:00:00:02","src":"10.0.0.1","dst":"10.0.0.2","ttl":64,"ipId":9,"srcPort":53793,` +
			`"opcode":"RC_WRITE_ONLY_IMM","destQp":17,"psn":7,"pkey":"0xffff","ackReq":true,"solicited":true,"payload":5,"pad":3,` +
			`"reth":{"va":"0x7f0000001000","rkey":"0xabc","length":5},"immediate":"0xc0ffee","icrc":"ok","icrcValue":`,
		`"comments":["bit flipped by f1\nand \u001b[31mmore"]`,
		`"vlan":5,"src":"fd00::1","dst":"fd00::2","tos":3,"ttl":1,`,
		`"kind":"malformed","error":"malformed UDP: inconsistent length: 52, want 51"`,
		`"kind":"other","srcMac":"02:00:00:00:00:01","dstMac":"ff:ff:ff:ff:ff:ff"}`,
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines\n%s", len(lines), got)
	}
	for i, line := range lines {
		if !strings.Contains(line, want[i]) || !json.Valid([]byte(line)) {
			t.Errorf("line %d: %s\nwant in it: %s", i, line, want[i])
		}
	}
}

// Every header has its JSON object, and no packet has the object of a header that it lacks.
func TestJSONHeaders(t *testing.T) {
	names := map[wire.Headers]string{
		wire.HasDETH: "deth", wire.HasXRCETH: "srqn", wire.HasRETH: "reth", wire.HasAtomicETH: "atomicEth", wire.HasAETH: "aeth",
		wire.HasAtomicAckETH: "atomicAck", wire.HasImmDt: "immediate", wire.HasIETH: "invalidateRkey",
	}
	for op := range 256 {
		f := testFrame()
		f.BTH.Opcode = wire.Opcode(op)
		data := f.AppendTo(nil)
		r := Record{Packet: pcapng.Packet{Data: data, OrigLen: len(data)}}
		r.decode()
		text, err := r.appendJSON(nil, "")
		if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		if err := json.Unmarshal(text, &object); err != nil {
			t.Fatal(err)
		}
		for bit, name := range names {
			if _, ok := object[name]; ok != f.BTH.Opcode.Has(bit) {
				t.Errorf("%v: %q is there: %t", f.BTH.Opcode, name, ok)
			}
		}
		atomic, _ := object["atomicEth"].(map[string]any)
		for _, name := range []string{"swapMask", "compareMaskOrBoundary"} {
			if _, ok := atomic[name]; ok != f.BTH.Opcode.Has(wire.HasAtomicMasks) {
				t.Errorf("%v: %q is there: %t", f.BTH.Opcode, name, ok)
			}
		}
		reth, _ := object["reth"].(map[string]any)
		for _, name := range []string{"selectivity", "placement"} {
			if _, ok := reth[name]; ok != f.BTH.Opcode.Has(wire.HasFETH) {
				t.Errorf("%v: %q is there: %t", f.BTH.Opcode, name, ok)
			}
		}
	}
}

// A packet that was captured in part is decoded up to the end of the captured bytes, and its ICRC
// is neither good nor bad.
func TestCut(t *testing.T) {
	data := testFrame().AppendTo(nil)
	r := Record{Packet: pcapng.Packet{Data: data[:72], OrigLen: len(data)}}
	r.decode()
	if r.Verdict != Cut || r.Frame.RETH.RKey != 0xabc || r.Err != nil {
		t.Errorf("%s, %v, %v", r.Verdict, &r.Frame, r.Err)
	}
	d := Dumper{}
	d.count(&r)
	if got, want := d.Stats.String(), "1 RoCEv2 packets: 0 good, 0 with a wrong ICRC, 0 malformed, 1 captured in part; 0 other frames; 0 shown"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// An error in the captured bytes is certain, whatever the other bytes are.
	short := bytes.Clone(data[:72])
	short[39]-- // the length in the UDP header
	bad := Record{Packet: pcapng.Packet{Data: short, OrigLen: len(data)}}
	bad.decode()
	d.count(&bad)
	if bad.Verdict != Malformed || bad.Err == nil || d.Stats.Malformed != 1 || d.Stats.Cut != 1 {
		t.Errorf("cut and malformed: %s, %v, %v", bad.Verdict, bad.Err, &d.Stats)
	}
	// Errors that depend on the bytes that were not captured are not certain.
	for n := range 72 {
		r := Record{Packet: pcapng.Packet{Data: data[:n], OrigLen: len(data)}}
		if r.decode(); r.Verdict == Malformed {
			t.Errorf("%d captured bytes: %v", n, r.Err)
		}
	}
	// Lengths so large that no memory must be allocated for them.
	r.OrigLen = 1 << 40
	r.decode()
}

// Dump prints the packets before the broken place of a file, and the offset of that place.
func TestBrokenFile(t *testing.T) {
	file := capture(t)
	got, _, err := run(t, file[:len(file)-10], Config{})
	var e *pcapng.Error
	if !errors.As(err, &e) || !errors.Is(err, pcapng.ErrTruncated) || got != goodLine+badLine+oddLine+shortLine {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestLinkType(t *testing.T) {
	var file bytes.Buffer
	w, err := pcapng.NewWriter(&file)
	if err != nil {
		t.Fatal(err)
	}
	const linuxCooked = 113
	if _, err := w.AddInterface("any", linuxCooked); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.WritePacket(0, 0, make([]byte, 60), ""), w.Flush()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := run(t, file.Bytes(), Config{}); !errors.Is(err, ErrLinkType) {
		t.Errorf("%v", err)
	}
}

var errFull = errors.New("no space left on device")

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestFullDisk(t *testing.T) {
	d, err := New(fullDisk{}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Dump("x", bytes.NewReader(capture(t))); !errors.Is(err, errFull) {
		t.Errorf("%v", err)
	}
}

// A packet that arrives on a pipe is printed before dump waits for the next one.
func TestLive(t *testing.T) {
	file, in := capture(t), new(pipe)
	var out strings.Builder
	d, err := New(&out, Config{})
	if err != nil {
		t.Fatal(err)
	}
	second := secondPacket(t, file)
	in.parts = [][]byte{file[:second], file[second:]}
	in.waiting = func() {
		if len(in.parts) == 1 && out.String() != goodLine {
			t.Errorf("while it waits it has printed %q", out.String())
		}
	}
	if err := d.Dump("-", in); err != nil || d.Stats.RoCE != 4 {
		t.Errorf("%v, %+v", err, d.Stats)
	}
}

// secondPacket returns the offset of the second packet of a file.
func secondPacket(t *testing.T, file []byte) int64 {
	t.Helper()
	r, err := pcapng.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	var p pcapng.Packet
	if err := errors.Join(r.Next(&p), r.Next(&p)); err != nil {
		t.Fatal(err)
	}
	return p.Offset
}

// pipe returns one part at each read.
type pipe struct {
	parts   [][]byte
	waiting func()
}

func (p *pipe) Read(b []byte) (int, error) {
	p.waiting()
	if len(p.parts) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.parts[0])
	if p.parts[0] = p.parts[0][n:]; len(p.parts[0]) == 0 {
		p.parts = p.parts[1:]
	}
	return n, nil
}

// A packet without IP addresses is printed with its Ethernet addresses.
func TestMalformedIP(t *testing.T) {
	data := testFrame().AppendTo(nil)
	data[14+8]++ // time to live
	r := Record{Packet: pcapng.Packet{Data: data, OrigLen: len(data)}}
	r.decode()
	want := "02:00:00:00:00:01 > 02:00:00:00:00:02 malformed IPv4: wrong checksum: "
	if got := string(r.appendText(nil, new(int64))); !strings.Contains(got, want) {
		t.Errorf("%q, want in it %q", got, want)
	}
}

func TestOther(t *testing.T) {
	v4 := testFrame().AppendTo(nil)
	v6 := testFrame()
	v6.V6 = true
	message := (&onerma.Frame{
		IPv4:   wire.IPv4{Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2}},
		Header: onerma.Header{Kind: onerma.Request, Op: onerma.Read, Slot: 1, Generation: 2, Region: 3, Offset: 4, Length: 5, PID: 6, Counter: 7},
	}).AppendOpen(nil, 0)
	message = append(message, make([]byte, onerma.TagLen)...)
	for _, tc := range []struct {
		want string
		data []byte
	}{
		{"no Ethernet frame", []byte{1, 2, 3}},
		{"02:00:00:00:00:01 > 02:00:00:00:00:02 EtherType 0x88cc", patch(v4, 12, 0x88, 0xcc)},
		{"02:00:00:00:00:01 > 02:00:00:00:00:02 EtherType 0x0800", patch(v4, 23, 6)[:30]},
		{"10.0.0.1 > 10.0.0.2 TCP", patch(v4, 23, 6, v4[24], v4[25]+11)},
		{"10.0.0.1 > 10.0.0.2 ICMP", patch(v4, 23, 1, v4[24], v4[25]+16)},
		{":: > :: ICMPv6", patch(v6.AppendTo(nil), 20, 58)},
		{
			"10.0.0.1 > 10.0.0.2 ONERMA READ request slot=1/2 region=3 offset=4 length=5 pid=6 class=0 counter=0x7",
			message,
		},
		{"ONERMA message: wrong version: 9", patch(message, 42, 9)},
		{":: > :: UDP", patch(v6.AppendTo(nil), 56, 0)},
		{":: > :: IP protocol 89", patch(v6.AppendTo(nil), 20, 89)},
	} {
		if got := string(appendOther(nil, tc.data)); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

func patch(b []byte, at int, v ...byte) []byte {
	b = bytes.Clone(b)
	copy(b[at:], v)
	return b
}

// FuzzDump: no file makes dump panic, and every line with -o json is valid JSON.
func FuzzDump(f *testing.F) {
	for _, name := range []string{"cm_reject", "nak_atomic_rkey", "rc_send_pad", "uc_send_imm"} {
		file, err := os.ReadFile("../../wire/testdata/golden/" + name + ".pcap")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		for _, asJSON := range []bool{false, true} {
			var out bytes.Buffer
			d, err := New(&out, Config{JSON: asJSON, Filter: Filter{Other: true}})
			if err != nil {
				t.Fatal(err)
			}
			_ = d.Dump("f", bytes.NewReader(file)) // any error is allowed
			if n := bytes.Count(out.Bytes(), []byte{'\n'}); n != d.Stats.Shown || n != d.Stats.RoCE+d.Stats.Other {
				t.Fatalf("%d lines, %+v", n, d.Stats)
			}
			for line := range bytes.Lines(out.Bytes()) {
				if asJSON && !json.Valid(line) {
					t.Fatalf("%s", line)
				}
			}
		}
	})
}
