package cli

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
)

// part writes what a capture file has from packet `from` on, with its packets cut to keep bytes (0: whole) and
// statistics that lost packets are missing.
func part(t *testing.T, source string, from, keep int, lost uint64) (path string) {
	t.Helper()
	in, err := os.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	path = filepath.Join(t.TempDir(), "part.pcapng")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	r, err := pcapng.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	w, err := pcapng.NewWriter(out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.AddInterface("x", pcapng.Ethernet); err != nil {
		t.Fatal(err)
	}
	var p pcapng.Packet
	for n := 0; r.Next(&p) == nil; n++ {
		if n < from {
			continue
		}
		data := p.Data
		if keep > 0 && len(data) > keep {
			data = data[:keep]
		}
		if err := w.WriteTruncated(0, p.Time, data, len(p.Data), ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.WriteStatistics(0, 0, 0, lost, ""); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return path
}

// A check says first what the capture lacks: packets that were dropped, their ends, and the beginning.
func TestCheckSaysFirstWhatIsMissing(t *testing.T) {
	whole := golden + "rc_write_multi.pcap"
	for _, c := range []struct {
		from, keep int
		lost       uint64
		want       string
	}{
		{0, 0, 0, ""}, {0, 0, 7, "7 packets not captured"}, {0, 100, 0, "captured in part"}, {1, 0, 0, "1 flow captured from the middle"},
	} {
		path := part(t, whole, c.from, c.keep, c.lost)
		var out strings.Builder
		cmd := dumpCmd()
		cmd.SetOut(&out)
		cmd.SetErr(io.Discard)
		cmd.SetArgs([]string{"--check", path})
		_ = cmd.Execute() // a violation gives status 1
		first, rest, _ := strings.Cut(out.String(), "\n")
		if said := strings.Contains(first, "the capture is not complete"); said != (c.want != "") || !strings.Contains(rest+first, c.want) {
			t.Errorf("from packet %d, %d bytes of each, %d lost: want %q first in\n%s", c.from, c.keep, c.lost, c.want, &out)
		}
	}
}
