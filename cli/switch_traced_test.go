package cli

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/swordbox/packettrace"
	"github.com/rdmalab/rdmalab/swordbox/telemetry"
	"github.com/rdmalab/rdmalab/swordbox/tracestore"
)

func TestTracedIsPrinted(t *testing.T) {
	k := telemetry.Key{Type: 0x800, Proto: 17, Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), SrcPort: 49152, DstPort: 4791}
	r := &packettrace.Report{
		Records: 9, Missing: 2, Others: 3, Packets: 18, Bytes: 1800, Span: 1500 * time.Millisecond, Every: 2,
		Flows: []packettrace.Flow{{Key: k, QP: 5, Packets: 18, Bytes: 1800, Share: 1, Numbered: 8, Late: 4, Again: 1}},
	}
	var out bytes.Buffer
	if err := printTraced(&out, rackfile.Names{k.Src: "cn0"}, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"18 packets of 1800 bytes in 1.5 s, from a sample of 1/2\n", "9 records; 2 missing between them; 3 of former rings\n", "cn0:49152 > 10.0.0.2:4791 udp QP 0x5", "18       1800   100.0 %  8         4     1\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
}

func TestRingOfRule(t *testing.T) {
	a, b := tracestore.Ring{Rules: []string{"a", "c"}}, tracestore.Ring{Rules: []string{"b"}}
	for _, tc := range []struct {
		list []tracestore.Ring
		rule string
		want string // the first rule of the ring, or an error
	}{
		{[]tracestore.Ring{a}, "", "a"},
		{[]tracestore.Ring{a, b}, "c", "a"},
		{[]tracestore.Ring{a, b}, "b", "b"},
		{nil, "a", "no rule has action trace"},
		{[]tracestore.Ring{a, b}, "", "there are 2 rings; name a rule: a, c, b"},
		{[]tracestore.Ring{a, b}, "x", "those that have it: a, c, b"},
	} {
		g, err := ringOf(tc.list, tc.rule)
		if err == nil && g.Rules[0] != tc.want || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v %q: %v, %v", tc.list, tc.rule, g, err)
		}
	}
}

// A trace is written as a capture, which dump reads: the bytes are cut, the lengths are those of the frames.
func TestTraceAsCapture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.pcapng")
	tr := packettrace.New(3)
	tr.Add((&packettrace.Record{Number: 1, Epoch: 3, Time: 5, Length: 5000, Packets: 5, Taken: 1, Head: make([]byte, 92)}).AppendTo(nil))
	if err := writeTrace(file, tr); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var p pcapng.Packet
	r, err := pcapng.NewReader(f)
	if err == nil {
		err = r.Next(&p)
	}
	if err != nil || p.OrigLen != 5000 || len(p.Data) != 92 || p.Time != 5 || p.Comments[0] != "super-frame of 5 packets" {
		t.Errorf("%+v, %v", p, err)
	}
}
