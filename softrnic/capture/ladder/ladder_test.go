package ladder

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

var update = flag.Bool("update", false, "write the golden files")

// story adds packets of one connection between cn0 (10.0.0.1) and ms0 (10.0.0.2).
type story struct {
	m   *Model
	now int64
	msn uint32
	// length is that of READs in bytes.
	length uint32
}

func (s *story) add(t *testing.T, link string, request bool, op wire.Opcode, psn wire.PSN, syn wire.Syndrome, comments ...string) {
	t.Helper()
	r := &dump.Record{Verdict: dump.OK}
	r.Name, r.Time, r.Comments = link, s.now, comments
	s.now += 1000
	src, dst, qpn := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), wire.QPN(0x22)
	if !request {
		src, dst, qpn = dst, src, 0x11
	}
	r.Frame.IPv4.Src, r.Frame.IPv4.Dst = src.As4(), dst.As4()
	r.Frame.BTH = wire.BTH{Opcode: op, DestQP: qpn, PSN: psn}
	if op.Plain() == wire.RCReadRequest {
		r.Frame.RETH.Length = s.length
	}
	r.Frame.AETH = wire.AETH{Syndrome: syn, MSN: s.msn}
	if err := s.m.Add(r); err != nil {
		t.Fatal(err)
	}
}

// A lost WRITE packet, the NAK that asks for it, and the packets that are sent again; PSNs wrap.
func lostWrite(t *testing.T) *Model {
	s := &story{m: New()}
	const first = 0xfffffe
	s.add(t, "cn0 up", true, wire.RCWriteFirst, first, 0)
	for i := 1; i <= 3; i++ {
		s.add(t, "cn0 up", true, wire.RCWriteMiddle, wire.PSN(first).Add(i), 0)
	}
	s.add(t, "cn0 up", true, wire.RCWriteMiddle, 2, 0, "fault f1 (loss): dropped")
	s.add(t, "cn0 up", true, wire.RCWriteLast, 3, 0)
	s.add(t, "ms0 down", true, wire.RCWriteLast, 3, 0)
	s.add(t, "ms0 up", false, wire.RCAck, 2, wire.NakPSNSequence)
	s.add(t, "cn0 up", true, wire.RCWriteMiddle, 2, 0)
	s.add(t, "cn0 up", true, wire.RCWriteLast, 3, 0, "dropped by the switch: partition")
	s.add(t, "cn0 up", true, wire.RCWriteLast, 3, 0)
	s.add(t, "ms0 up", false, wire.RCAck, 3, wire.AckNoCredits)
	return s.m
}

func TestText(t *testing.T) {
	var got bytes.Buffer
	if err := lostWrite(t).WriteText(&got); err != nil {
		t.Fatal(err)
	}
	golden(t, "lost-write.txt", got.Bytes())
}

// A response that is lost is the cause of its repetition; a repeated ACK is no copy.
func TestResponse(t *testing.T) {
	s := &story{m: New()}
	s.add(t, "", true, wire.RCReadRequest, 7, 0)
	s.add(t, "", false, wire.RCReadResponseOnly, 7, wire.AckNoCredits, "fault f1 (loss): dropped")
	s.add(t, "", true, wire.RCReadRequest, 7, 0)
	s.add(t, "", false, wire.RCReadResponseOnly, 7, wire.AckNoCredits)
	s.add(t, "", true, wire.RCSendOnly, 8, 0)
	s.add(t, "", false, wire.RCAck, 8, wire.AckNoCredits)
	s.add(t, "", false, wire.RCAck, 8, wire.AckNoCredits)
	for i, want := range []Resend{
		{}, {}, {First: 1, Why: Unanswered, Wait: 2000, Gone: 2, GoneAnswer: true}, {First: 2, Why: Repeated, Cause: 3, Gone: 2}, {}, {}, {},
	} {
		if r := &s.m.Rows()[i]; r.Resend != want {
			t.Errorf("packet %d: %+v; want %+v", r.Number, r.Resend, want)
		}
	}
	if got := s.m.Rows()[5].PSN; got != 1 {
		t.Errorf("the ACK has relative PSN %d, want 1", got)
	}
}

func TestTooManyLines(t *testing.T) {
	s := &story{m: New()}
	for _, link := range []string{"a up", "b up", "c up", "d up", "e up", "f up"} {
		s.add(t, link, true, wire.RCSendOnly, 1, 0)
	}
	if err := s.m.WriteText(io.Discard); !errors.Is(err, ErrLines) {
		t.Errorf("error %v, want ErrLines", err)
	}
}

// No capture makes the model panic, and no text has a control character.
func FuzzLadder(f *testing.F) {
	names, err := filepath.Glob("../../wire/testdata/golden/*.pcap")
	if err != nil || len(names) == 0 {
		f.Fatalf("%d golden captures, %v", len(names), err)
	}
	for _, name := range names {
		file, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		m := New()
		d, err := dump.New(io.Discard, dump.Config{Each: m.Add})
		if err != nil {
			t.Fatal(err)
		}
		_ = d.Dump("", bytes.NewReader(file)) // a broken file is drawn as far as it can be read
		var out strings.Builder
		page := func(w io.Writer) error { return m.WriteHTML(w, "") }
		for _, draw := range []func(io.Writer) error{m.WriteText, m.WriteSVG, page} {
			if err := draw(&out); err != nil && !errors.Is(err, ErrLines) {
				t.Fatal(err)
			}
		}
		if strings.ContainsFunc(out.String(), func(r rune) bool { return r < ' ' && r != '\n' }) {
			t.Errorf("control character in %q", out.String())
		}
	})
}
