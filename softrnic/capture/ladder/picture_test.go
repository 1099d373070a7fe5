package ladder

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// shown has all that a ladder can show: a lost packet and its name, a NAK, packets that are sent again, a burst, a lost
// answer, a packet that the switch has rewritten, and text that is no markup.
func shown(t *testing.T) *Model {
	t.Helper()
	m := lostWrite(t)
	s := &story{m: m, now: 20000}
	s.add(t, "cn0 up", true, wire.RCSendOnly, 4, 0)
	s.add(t, "ms0 down", true, wire.RCSendOnly, 4, 0, "left after its delay")
	s.add(t, "ms0 up", false, wire.RCAck, 4, wire.AckNoCredits, "fault f2 (loss): dropped")
	s.add(t, "cn0 up", true, wire.RCSendOnly, 4, 0, "fault <b>&")
	s.add(t, "ms0 up", false, wire.RCAck, 5, wire.RNRNak|12)
	addOn(t, m, "cn0 up", true, 0x22, 5, wire.RCFetchAdd, "FAA→WRITE conn 2 psn 5→100 value 1, was 0, to ms0")
	addOn(t, m, "ms0 down", true, 0x33, 100, wire.RCWriteOnly, "FAA→WRITE conn 2 psn 5→100 value 1, was 0, from cn0")
	return m
}

// golden compares got with a file of testdata, or writes the file.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile("testdata/"+name, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/" + name)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %v\ngot:\n%s", name, err, got)
	}
}

// The picture and the page are well-formed, and refer to nothing outside.
func TestPictures(t *testing.T) {
	for name, draw := range map[string]func(*Model, io.Writer) error{
		"shown.svg":  (*Model).WriteSVG,
		"shown.html": func(m *Model, w io.Writer) error { return m.WriteHTML(w, "Ladder of <x>.pcapng") },
	} {
		var out bytes.Buffer
		if err := draw(shown(t), &out); err != nil {
			t.Fatal(err)
		}
		golden(t, name, out.Bytes())
		d := xml.NewDecoder(&out)
		d.Strict = strings.HasSuffix(name, "svg")
		d.AutoClose, d.Entity = xml.HTMLAutoClose, xml.HTMLEntity
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			start, ok := token.(xml.StartElement)
			if !ok {
				continue
			}
			if start.Name.Local == "script" || start.Name.Local == "b" && name == "shown.svg" {
				t.Errorf("%s: element %s", name, start.Name.Local)
			}
			for _, a := range start.Attr {
				outside := strings.Contains(a.Value, "//") && a.Name.Local != "xmlns" || a.Name.Local == "src"
				if outside || a.Name.Local == "href" && !strings.HasPrefix(a.Value, "#p") {
					t.Errorf("%s: %s=%q leads outside", name, a.Name.Local, a.Value)
				}
			}
		}
	}
}

// Every link of the page leads to a row.
func TestPageLinks(t *testing.T) {
	var out strings.Builder
	if err := shown(t).WriteHTML(&out, ""); err != nil {
		t.Fatal(err)
	}
	links := 0
	for part := range strings.SplitSeq(out.String(), `href="#`) {
		id, _, ok := strings.Cut(part, `"`)
		if !ok || !strings.HasPrefix(id, "p") {
			continue
		}
		links++
		if !strings.Contains(out.String(), `id="`+id+`"`) {
			t.Errorf("a link to %s leads nowhere", id)
		}
	}
	if links < 20 {
		t.Errorf("%d links", links)
	}
}

// A long ladder says what its picture leaves out.
func TestLongPicture(t *testing.T) {
	m := New()
	for i := range MaxDrawn + 7 {
		addPair(t, m, true, 0x22, wire.PSN(0).Add(i), wire.RCWriteOnly)
	}
	var out strings.Builder
	if err := m.WriteHTML(&out, "long"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), `class="row "`); got != MaxDrawn || !strings.Contains(out.String(), "7 rows and 0 packets are left out") {
		t.Errorf("%d rows", got)
	}
}
