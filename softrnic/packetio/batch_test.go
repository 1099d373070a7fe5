package packetio

import "testing"

// Bytes counts what Alloc has given, also when a batch outgrows its memory.
func TestBytesOfABatch(t *testing.T) {
	var b Batch
	for range 3 {
		for i := range 20 {
			b.Alloc(4000)
			if got, want := b.Bytes(), (i+1)*4000; got != want {
				t.Fatalf("%d bytes after %d allocations, want %d", got, i+1, want)
			}
		}
		if b.Reset(); b.Bytes() != 0 {
			t.Fatalf("%d bytes after Reset", b.Bytes())
		}
	}
}
