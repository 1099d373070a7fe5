package pdpm

import (
	"bytes"
	"testing"
	"time"
)

// What is parsed from any bytes is written as the same bytes again, and nothing panics.
func FuzzMessages(f *testing.F) {
	q := query{seq: 7, op: opPut, key: 1 << 63, addr: 1 << 40, rkey: 99, patience: time.Second, value: []byte("value")}
	a := answer{seq: 7, status: doubtful, trips: 2, waits: 255, value: []byte("value")}
	f.Add(q.appendTo(nil))
	f.Add(a.appendTo(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var q query
		if q.parse(b) == nil && !bytes.Equal(q.appendTo(nil), b) {
			t.Errorf("query %x is written as %x", b, q.appendTo(nil))
		}
		var a answer
		if a.parse(b) == nil && !bytes.HasPrefix(b, a.appendTo(nil)) {
			t.Errorf("answer %x is written as %x", b, a.appendTo(nil))
		}
	})
}
