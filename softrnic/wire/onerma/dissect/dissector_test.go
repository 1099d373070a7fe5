package dissect

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// message returns a frame with a message of which each field is likely to be legal, and sometimes is not.
func message(r *rand.Rand) []byte {
	mostly := func(n, most int) int { // 1 to n, or seldom 0 to most
		if r.IntN(12) == 0 {
			return r.IntN(most + 1)
		}
		return 1 + r.IntN(n)
	}
	f := onerma.Frame{
		Eth:  wire.Ethernet{Dst: wire.MAC{2, 2}, Src: wire.MAC{2, 1}},
		IPv4: wire.IPv4{TTL: 64, Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2}},
		UDP:  wire.UDP{SrcPort: 4792},
		Header: onerma.Header{
			Kind: onerma.Kind(mostly(6, 8)), Op: onerma.Op(mostly(3, 5)), Class: uint8(mostly(2, 4) - 1), Slot: uint16(r.Uint32()), Generation: r.Uint32(),
			Region: r.Uint32(), Offset: r.Uint64(), Length: uint32(mostly(4096, 5000)), PID: r.Uint32(), Counter: r.Uint64(), Ticket: r.Uint32(),
		},
	}
	if f.Op == onerma.Rekey && r.IntN(8) > 0 {
		f.Length = onerma.KeyLen
	}
	body := 0
	switch f.Kind {
	case onerma.Data:
		f.At = uint16(r.IntN(1+int(f.Length-1)/64) * 64)
		body = min(int(f.Length)-int(f.At), 64*(1+r.IntN(4)))
	case onerma.Pull:
		body = onerma.PullLen
	}
	if r.IntN(12) == 0 {
		body, f.At = r.IntN(100), uint16(r.IntN(200))
	}
	b := append(f.AppendOpen(nil, body), make([]byte, max(0, body)+onerma.TagLen)...)
	for i := len(b) - max(0, body) - onerma.TagLen; i < len(b); i++ {
		b[i] = byte(r.Uint32())
	}
	if r.IntN(40) == 0 {
		b[14+20+8] = byte(r.IntN(4)) // the version
	}
	return b
}

// The dissector shows each field of a message as package wire reads it, and calls the same messages malformed.
func TestDissector(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("tshark is not installed: no program that executes the dissector (apt-get install tshark)")
	}
	dir := t.TempDir()
	script, file := filepath.Join(dir, "onerma.lua"), filepath.Join(dir, "messages.pcapng")
	if err := os.WriteFile(script, []byte(Dissector), 0o644); err != nil {
		t.Fatal(err)
	}
	w, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pcapng.NewWriter(w)
	if err == nil {
		_, err = out.AddInterface("x", pcapng.Ethernet)
	}
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(4, 7))
	var want []string
	bad := 0
	for range 3000 {
		b := message(rnd)
		if err := out.WritePacket(0, 1, b, ""); err != nil {
			t.Fatal(err)
		}
		line, wrong := fields(b)
		want = append(want, line)
		if wrong {
			bad++
		}
	}
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("tshark", "-X", "lua_script:"+script, "-r", file, "-T", "fields", "-E", "separator=|")
	for _, name := range strings.Fields("version kind op class slot at generation region offset length pid counter ticket malformed") {
		cmd.Args = append(cmd.Args, "-e", "onerma."+name)
	}
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	got := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	if len(got) != len(want) {
		t.Fatalf("tshark reads %d packets of %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("packet %d: tshark reads\n%s, want\n%s", i, got[i], want[i])
		}
	}
	if bad < 300 || bad > 2000 {
		t.Errorf("%d of %d messages are malformed: the test shows little", bad, len(want))
	}
}

// fields returns what tshark prints of a message, and whether it is malformed.
func fields(b []byte) (string, bool) {
	var f onerma.Frame
	wrong := onerma.ParseFrame(b, &f) != nil
	m := b[14+20+8:]
	be := binary.BigEndian
	line := fmt.Sprintf("%d|%d|%d|%d|%d|%d|%d|%d|%d|%d|%d|0x%016x|0x%08x|", m[0], m[1], m[2], m[3], be.Uint16(m[4:]), be.Uint16(m[6:]), be.Uint32(m[8:]),
		be.Uint32(m[12:]), be.Uint64(m[16:]), be.Uint32(m[24:]), be.Uint32(m[28:]), be.Uint64(m[32:]), be.Uint32(m[40:]))
	if wrong {
		line += "1"
	}
	return line, wrong
}
