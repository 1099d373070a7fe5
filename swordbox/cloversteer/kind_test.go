package cloversteer

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
)

// The listing prints what the daemon has sent.
func TestPrintKeys(t *testing.T) {
	var lines []json.RawMessage
	for _, k := range []Key{
		{Key: 7, Reads: 10, Appends: 5, Steered: 3, Rate: 1234.4, Waiting: 2, Tail: &Tail{
			Server: netip.MustParseAddr("10.0.0.1"), VA: 0x1000, Length: 128, Version: 4, Sequence: 9,
		}},
		{Key: 8, Reads: 1},
	} {
		line, err := json.Marshal(k)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	var b strings.Builder
	if err := Kind.Listings[0].Print(&b, netip.Addr.String, lines); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"10.0.0.1:0x1000", "1234", "SEQUENCE"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Count(b.String(), "\n") != 3 {
		t.Errorf("%s", b.String())
	}
	if err := Kind.Listings[0].Print(&b, netip.Addr.String, []json.RawMessage{[]byte(`{"key":"x"}`)}); err == nil {
		t.Error("a line that is no key is printed")
	}
}
