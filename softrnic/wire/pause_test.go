package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// F1: the bytes of pause frames, written down from the table of IEEE 802.1Qbb (annex 31D of IEEE
// 802.3) and of annex 31B. TestTsharkReadsPausesAndMarks has another reader.
func TestPauseBytes(t *testing.T) {
	src := MAC{0x02, 0x72, 0x9e, 0x37, 0x00, 0x01}
	for _, c := range []struct {
		p    Pause
		want string
	}{
		{
			Pause{Src: src, Enabled: 1<<3 | 1<<4, Time: [8]uint16{3: 0xffff, 4: 0x0102}},
			"0180c2000001 02729e370001 8808 0101 0018 0000 0000 0000 ffff 0102 0000 0000 0000" + strings.Repeat("00", 26),
		},
		{Pause{Src: src, Enabled: 0x80}, "0180c2000001 02729e370001 8808 0101 0080 0000 0000 0000 0000 0000 0000 0000 0000" + strings.Repeat("00", 26)},
		{Pause{Src: src, Global: true, Time: [8]uint16{0x1234}}, "0180c2000001 02729e370001 8808 0001 1234" + strings.Repeat("00", 42)},
	} {
		want, err := hex.DecodeString(strings.ReplaceAll(c.want, " ", ""))
		if err != nil || len(want) != 60 {
			t.Fatalf("%v, %d bytes", err, len(want))
		}
		got := c.p.AppendTo(make([]byte, 3))[3:]
		if !bytes.Equal(got, want) || c.p.Len() != len(got) {
			t.Errorf("%+v:\n%x, want\n%x", c.p, got, want)
		}
		var back Pause
		if err := ParsePause(append(want, 1, 2, 3, 4), &back); err != nil || back != c.p {
			t.Errorf("%v, %+v, want %+v", err, back, c.p)
		}
	}
}

func TestPauseRefuses(t *testing.T) {
	good := (&Pause{Enabled: 1, Time: [8]uint16{1}}).AppendTo(nil)
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		want   error
	}{
		"short":              {func(b []byte) []byte { return b[:59] }, ErrTruncated},
		"another EtherType":  {func(b []byte) []byte { b[13] = 9; return b }, ErrNotPause},
		"another opcode":     {func(b []byte) []byte { b[15] = 2; return b }, ErrNotPause},
		"another address":    {func(b []byte) []byte { b[5] = 2; return b }, ErrAddress},
		"reserved classes":   {func(b []byte) []byte { b[16] = 1; return b }, ErrReserved},
		"tagged":             {func(b []byte) []byte { b[12], b[13] = 0x81, 0; return b }, ErrNotPause},
		"nothing":            {func([]byte) []byte { return nil }, ErrNotPause},
		"an Ethernet header": {func(b []byte) []byte { return b[:14] }, ErrTruncated},
	} {
		var p Pause
		if err := ParsePause(c.change(bytes.Clone(good)), &p); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// FuzzParsePause: no bytes make it panic, and what parses is encoded to the same fields.
func FuzzParsePause(f *testing.F) {
	f.Add((&Pause{Enabled: 0xff, Time: [8]uint16{1, 2, 3, 4, 5, 6, 7, 8}}).AppendTo(nil))
	f.Add((&Pause{Global: true, Time: [8]uint16{9}}).AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var first, second Pause
		if ParsePause(b, &first) != nil {
			return
		}
		if err := ParsePause(first.AppendTo(nil), &second); err != nil || first != second {
			t.Fatalf("%v: %+v became %+v", err, first, second)
		}
	})
}

// F1: tshark reads the times of a pause frame, and ECN and the IPv4 checksum of a marked packet.
func TestTsharkReadsPausesAndMarks(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("tshark is not installed: no independent reader (apt-get install tshark)")
	}
	marked := testFrame(RCWriteOnly, false, false, 64)
	marked.IPv4.TOS = 3<<2 | uint8(ECT0)
	packet := marked.AppendTo(nil)
	MarkCE(packet)
	v1 := func(i int) []byte {
		f, _ := v1Of(t, i)
		return f.AppendTo(nil)
	}
	file := []byte("\xd4\xc3\xb2\xa1\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04\x00\x01\x00\x00\x00") // classic pcap of Ethernet frames
	for _, b := range [][]byte{
		(&Pause{Enabled: 1<<3 | 1<<4, Time: [8]uint16{3: 0xffff, 4: 258}}).AppendTo(nil),
		(&Pause{Global: true, Time: [8]uint16{513}}).AppendTo(nil),
		packet, v1(0), v1(1), v1(2),
	} {
		file = append(file, make([]byte, 8)...)
		file = binary.LittleEndian.AppendUint32(file, uint32(len(b)))
		file = append(binary.LittleEndian.AppendUint32(file, uint32(len(b))), b...)
	}
	name := filepath.Join(t.TempDir(), "pauses.pcap")
	if err := os.WriteFile(name, file, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("tshark", "-r", name, "-o", "ip.check_checksum:TRUE", "-T", "fields", "-E", "separator=|")
	for _, field := range []string{
		"_ws.malformed", "macc.opcode", "macc.pause_time", "macc.cbfc.pause_time.c3", "macc.cbfc.pause_time.c4", "ip.dsfield.ecn", "ip.checksum.status",
		"infiniband.grh.paylen", "infiniband.bth.psn", "infiniband.reth.dmalen", "infiniband.atomiceth.swapdt",
	} {
		cmd.Args = append(cmd.Args, "-e", field)
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	marks := "|0x0101||65535|258||||||\n|0x0001|513||||||||\n|||||3|1||" + strconv.Itoa(int(marked.BTH.PSN)) + "|64|\n"
	if want := marks + "|||||||40|11259375|5|\n|||||||32|11259375|1500|\n|||||||44|11259375||3\n"; string(out) != want {
		t.Errorf("tshark reads\n%s, want\n%s", out, want)
	}
}
