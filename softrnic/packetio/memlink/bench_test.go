package memlink

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// BenchmarkCross moves batches of 32 packets from one end to the other in one goroutine: over the
// link, as super-frames, and over the queue in memory that tests use.
func BenchmarkCross(b *testing.B) {
	for _, size := range []int{36, 4112} {
		r := rand.New(rand.NewPCG(1, 1))
		var out, in packetio.Batch
		for i := range 32 {
			out.Add(0, roce(r, uint16(i), size))
		}
		cross := func(b *testing.B, from, to packetio.Port) {
			b.ReportAllocs()
			b.SetBytes(int64(32 * size))
			for b.Loop() {
				if _, err := from.Send(&out); err != nil {
					b.Fatal(err)
				}
				for {
					if n, err := to.Recv(&in); err != nil {
						b.Fatal(err)
					} else if n == 0 {
						break
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*32), "ns/packet")
		}
		for _, merge := range []bool{false, true} {
			b.Run(fmt.Sprintf("link/%dB/merge=%v", size, merge), func(b *testing.B) {
				k := attached(b, Config{MTU: 4200, Merge: merge})
				cross(b, k.host, k.sw)
			})
		}
		b.Run(fmt.Sprintf("queue/%dB", size), func(b *testing.B) {
			x, y := memcable.Pair(memcable.Config{})
			cross(b, x, y)
		})
	}
}
