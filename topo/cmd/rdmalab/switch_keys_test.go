package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/swordbox/apps/serialize"
	"github.com/rdmalab/rdmalab/swordbox/mode"
)

func TestPrintKeys(t *testing.T) {
	r := serialize.Report{Machines: []mode.Info{{Keys: []mode.Key{
		{Key: 7, Reads: 10, Appends: 5, Steered: 3, Rate: 1234.4, Waiting: 2, Tail: &mode.Tail{
			Server: netip.MustParseAddr("10.0.0.1"), VA: 0x1000, Length: 128, Version: 4, Sequence: 9,
		}},
		{Key: 8, Reads: 1},
		{Key: 9},
	}}}}
	var b strings.Builder
	if err := printKeys(&b, netip.Addr.String, keysOf(&r, 2)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"10.0.0.1:0x1000", "1234", "SEQUENCE"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Count(b.String(), "\n") != 3 || strings.Contains(b.String(), "\n9 ") {
		t.Errorf("%s", b.String())
	}
}
