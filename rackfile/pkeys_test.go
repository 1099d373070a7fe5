package rackfile

import (
	"fmt"
	"strings"
	"testing"
)

// A host dials in the first partition of its table, and accepts in any partition of its table.
func TestReaches(t *testing.T) {
	for _, c := range []struct {
		from, to []uint16
		want     bool
	}{
		{nil, nil, true},
		{nil, []uint16{0x8001}, false},
		{[]uint16{0x8001}, nil, false},
		{nil, []uint16{0x8001, 0x7fff}, true},
		{[]uint16{1, 0x8002}, []uint16{0x8002, 0x8001}, true},
		{[]uint16{1}, []uint16{1}, false},
		{[]uint16{3, 0x8001}, []uint16{0x8001}, false},
	} {
		if got := (&Host{PKeys: c.from}).Reaches(&Host{PKeys: c.to}); got != c.want {
			t.Errorf("%#x to %#x: %v", c.from, c.to, got)
		}
	}
}

// Over TCP hosts do not agree on a partition, so two connected queue pairs could be in different
// ones. pkeys are therefore refused.
func TestPartitionsNeedTheConnectionManager(t *testing.T) {
	const rack = "connect: %s\nhosts:\n  - {name: ms0, role: memory, pkeys: [0xffff, 0x8001]}\n"
	if _, err := Parse(fmt.Appendf(nil, rack, ConnectCM)); err != nil {
		t.Error(err)
	}
	if _, err := Parse(fmt.Appendf(nil, rack, ConnectTCP)); err == nil || !strings.Contains(err.Error(), "remove pkeys or connect: tcp") {
		t.Errorf("got %v", err)
	}
}
