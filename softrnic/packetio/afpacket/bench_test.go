package afpacket

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// BenchmarkCable moves frames over a veth pair in batches of 32; the operation is one frame.
func BenchmarkCable(b *testing.B) {
	for _, size := range []int{110, 4170} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			onCable(b, func(tx, rx *Port) {
				const burst = 32
				var out, in packetio.Batch
				for range burst {
					out.Add(0, frame(size, 1))
				}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if i%burst != 0 {
						continue
					}
					if _, err := tx.Send(&out); err != nil {
						b.Fatal(err)
					}
					for got := 0; got < burst; {
						n, err := rx.Recv(&in)
						if err != nil {
							b.Fatal(err)
						}
						got += n
					}
				}
			})
		})
	}
}

// BenchmarkEcho is one frame there and back, both ends in one goroutine.
func BenchmarkEcho(b *testing.B) {
	onCable(b, func(x, y *Port) {
		wx, err := NewWaiter(50*time.Microsecond, x)
		if err != nil {
			b.Fatal(err)
		}
		defer wx.Close()
		var out, in packetio.Batch
		out.Add(0, frame(110, 1))
		b.ReportAllocs()
		hop := func(from, to *Port) {
			if _, err := from.Send(&out); err != nil {
				b.Fatal(err)
			}
			for {
				if n, err := to.Recv(&in); err != nil {
					b.Fatal(err)
				} else if n > 0 {
					return
				}
			}
		}
		for b.Loop() {
			hop(x, y)
			hop(y, x)
		}
	})
}

func onCable(b *testing.B, f func(x, y *Port)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		newCable(b, 4200)
		f(open(b, Config{Ifname: endA, Mode: Switch}), open(b, Config{Ifname: endB, Mode: Switch}))
	}()
	<-done
}
