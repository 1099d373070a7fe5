package treeload

import (
	"strings"
	"testing"
)

// A search is one round trip with a warm cache, a change is three, two with a lock that is handed over, and the bytes are those
// that the formats come to (Sherman §5). The client counts what the wire carries.
func TestOperationsOnTheWire(t *testing.T) {
	list, err := Wire()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := WriteWire(&b, list); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + b.String())
	want := map[string]int{
		"search": 1, "update": 3, "delete": 3, "insert": 3, "insert behind the last key": 3, "update, lock handed over": 2,
	}
	seen := 0
	for _, c := range list {
		if want[c.Op] == 0 {
			t.Errorf("unexpected %s", c.Op)
		}
		seen++
		if c.RTTs != want[c.Op] || c.Bytes != c.Published || c.Said.RTTs != c.RTTs || c.Said.Bytes != c.Bytes {
			t.Errorf("%s: %d round trips and %d bytes on the wire (%v), the client says %d and %d; want %d and %d", c.Op, c.RTTs, c.Bytes, c.Packets,
				c.Said.RTTs, c.Said.Bytes, want[c.Op], c.Published)
		}
	}
	if seen != len(want) {
		t.Errorf("%d operations were measured, want %d", seen, len(want))
	}
}
