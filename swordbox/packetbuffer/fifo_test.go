package packetbuffer

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// The queue of the switch behaves like a list, and keeps copies.
func TestFifo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var q fifo
	var want [][]byte
	size, most := 0, 0
	for n := range 10_000 {
		if r.IntN(100) < 48 && q.n > 0 {
			f := q.pop()
			if !bytes.Equal(f.Data, want[0]) || f.SegSize != len(want[0]) {
				t.Fatalf("%x, want %x", f.Data, want[0])
			}
			size -= len(want[0])
			want = want[1:]
		} else {
			b := bytes.Repeat([]byte{byte(n)}, 1+r.IntN(1+n/3))
			want = append(want, bytes.Clone(b))
			size += len(b)
			most = max(most, size)
			q.push(packetio.Frame{Data: b, SegSize: len(b)})
			clear(b)
		}
		if len(q.data) > max(4*frameBytes, 8*most) {
			t.Fatalf("%d bytes of memory for at most %d bytes of frames", len(q.data), most)
		}
		if q.n != len(want) || q.bytes != size {
			t.Fatalf("%d frames of %d bytes, want %d of %d", q.n, q.bytes, len(want), size)
		}
	}
}
