package transform_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Wireshark decodes every transformed packet to the intended fields.
func TestTshark(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("tshark is not installed: no second independent reader (apt-get install tshark)")
	}
	file := filepath.Join(t.TempDir(), "golden.pcapng")
	w, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pcapng.NewWriter(w)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.AddInterface("golden", pcapng.Ethernet); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range transformations {
		names = append(names, name)
	}
	slices.Sort(names)
	var want []string
	for _, name := range names {
		b := readGolden(t, filepath.Join("testdata", name+".txt")).out
		if err := out.WritePacket(0, 1, b, name); err != nil {
			t.Fatal(err)
		}
		var f wire.Frame
		if err := wire.ParseFrame(b, &f); err != nil {
			t.Fatal(err)
		}
		want = append(want, expected(&f))
	}
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("tshark", "-r", file, "-T", "fields", "-E", "separator=|")
	for _, field := range []string{
		"_ws.malformed", "infiniband.bth.opcode", "infiniband.bth.padcnt", "infiniband.bth.a", "infiniband.bth.destqp", "infiniband.bth.psn", "infiniband.reth.va",
		"infiniband.reth.dmalen", "infiniband.aeth.msn", "infiniband.atomicacketh.origremdt", "infiniband.invariant.crc",
	} {
		cmd.Args = append(cmd.Args, "-e", field)
	}
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	got := strings.Split(strings.TrimSpace(string(b)), "\n")
	if len(got) != len(want) {
		t.Fatalf("tshark reads %d packets of %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s: tshark reads\n%s, want\n%s", names[i], got[i], want[i])
		}
	}
}

// expected returns the fields that tshark prints of a packet. It prints the ICRC in the order of
// its bytes.
func expected(f *wire.Frame) string {
	op := f.BTH.Opcode
	var reth, msn, prior string
	if reth = "|"; op.Has(wire.HasRETH) {
		reth = fmt.Sprintf("0x%016x|%d", f.RETH.VA, f.RETH.Length)
	}
	if op.Has(wire.HasAETH) {
		msn = fmt.Sprint(f.AETH.MSN)
	}
	if op.Has(wire.HasAtomicAckETH) {
		prior = fmt.Sprint(f.AtomicAck)
	}
	ack := 0
	if f.BTH.AckReq {
		ack = 1
	}
	c := f.ICRC
	return fmt.Sprintf("|%d|%d|%d|0x%06x|%d|%s|%s|%s|0x%02x%02x%02x%02x", op, f.BTH.Pad, ack, f.BTH.DestQP, f.BTH.PSN, reth, msn, prior,
		byte(c), byte(c>>8), byte(c>>16), byte(c>>24))
}
