package memcable

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func send(t *testing.T, p *Port, frames ...string) {
	t.Helper()
	var b packetio.Batch
	for _, f := range frames {
		b.Add(0, []byte(f))
	}
	if n, err := p.Send(&b); err != nil || n != len(frames) {
		t.Fatalf("Send = %d, %v; want %d", n, err, len(frames))
	}
}

func recv(t *testing.T, p *Port) []string {
	t.Helper()
	var b packetio.Batch
	n, err := p.Recv(&b)
	if err != nil || n != len(b.Frames) {
		t.Fatalf("Recv = %d, %v with %d frames", n, err, len(b.Frames))
	}
	var out []string
	for _, f := range b.Frames {
		out = append(out, string(f.Data))
	}
	return out
}

func TestOrderAndBatch(t *testing.T) {
	a, b := Pair(Config{Depth: 8, BatchSize: 3})
	send(t, a, "1", "2", "3", "4", "5")
	for _, want := range []string{"[1 2 3]", "[4 5]", "[]"} {
		if got := fmt.Sprint(recv(t, b)); got != want {
			t.Errorf("Recv = %v, want %v", got, want)
		}
	}
	send(t, b, "back")
	if got := recv(t, a); len(got) != 1 || got[0] != "back" {
		t.Errorf("other direction: %v", got)
	}
}

// Frames of a Recv keep their bytes until the next Recv, whatever is sent meanwhile.
func TestReceivedFramesAreNotOverwritten(t *testing.T) {
	a, b := Pair(Config{Depth: 4})
	send(t, a, "aa", "bb", "cc")
	var got packetio.Batch
	if n, err := b.Recv(&got); n != 3 || err != nil {
		t.Fatalf("Recv = %d, %v", n, err)
	}
	send(t, a, "xx", "yy", "zz") // one slot is left
	for i, want := range []string{"aa", "bb", "cc"} {
		if string(got.Frames[i].Data) != want {
			t.Errorf("frame %d = %q, want %q", i, got.Frames[i].Data, want)
		}
	}
	if s := b.Stats(); s.RxDropped != 2 {
		t.Errorf("RxDropped = %d, want 2", s.RxDropped)
	}
}

func TestFullQueueDrops(t *testing.T) {
	a, b := Pair(Config{Depth: 2})
	send(t, a, "1", "2", "3")
	if got := fmt.Sprint(recv(t, b), recv(t, b)); got != "[1] [2]" {
		t.Errorf("got %v", got)
	}
	if s := b.Stats(); s.RxDropped != 1 || s.RxPackets != 2 || a.Stats().TxPackets != 3 {
		t.Errorf("stats %+v / %+v", s, a.Stats())
	}
}

func TestFilterLosesAndCopies(t *testing.T) {
	a, b := Pair(Config{Filter: func(from, index int, _ packetio.Frame) int {
		if from == 1 {
			return 0
		}
		return index % 3
	}})
	send(t, a, "0", "1", "2")
	if got := fmt.Sprint(recv(t, b)); got != "[1 2 2]" {
		t.Errorf("got %v", got)
	}
	send(t, b, "lost")
	if got := recv(t, a); len(got) != 0 {
		t.Errorf("got %v, want nothing", got)
	}
}

func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pair(Config{})
		w := NewWaiter(b)
		start := time.Now()
		if err := w.Wait(time.Second); err != nil || time.Since(start) != time.Second {
			t.Errorf("timeout: %v after %v", err, time.Since(start))
		}
		w.Wake()
		if err := w.Wait(-1); err != nil {
			t.Errorf("after Wake: %v", err)
		}
		go func() { time.Sleep(time.Second); send(t, a, "x") }()
		start = time.Now()
		if err := w.Wait(-1); err != nil || time.Since(start) != time.Second {
			t.Errorf("frame: %v after %v", err, time.Since(start))
		}
		if got := recv(t, b); len(got) != 1 {
			t.Errorf("got %v", got)
		}
		start = time.Now()
		if err := w.Wait(time.Minute); err != nil || time.Since(start) != time.Minute {
			t.Errorf("a received frame ended a later Wait: %v after %v", err, time.Since(start))
		}
		go func() { time.Sleep(time.Second); w.Wake() }()
		if err := w.Wait(-1); err != nil {
			t.Errorf("Wake: %v", err)
		}
		go func() { time.Sleep(time.Second); b.Close() }()
		if err := w.Wait(-1); !errors.Is(err, ErrClosed) {
			t.Errorf("closed port: %v", err)
		}
		w.Close()
		w.Close()
		if err := w.Wait(-1); !errors.Is(err, ErrClosed) {
			t.Errorf("closed waiter: %v", err)
		}
	})
}

func TestClosedPort(t *testing.T) {
	a, b := Pair(Config{})
	b.Close()
	b.Close()
	send(t, a, "into the void")
	var bt packetio.Batch
	if _, err := b.Recv(&bt); !errors.Is(err, ErrClosed) {
		t.Errorf("Recv on closed = %v", err)
	}
	if _, err := b.Send(&bt); !errors.Is(err, ErrClosed) {
		t.Errorf("Send on closed = %v", err)
	}
}

// Two goroutines push a counter through both directions; every frame arrives, in order.
func TestConcurrent(t *testing.T) {
	const total = 5000
	a, b := Pair(Config{Depth: 64})
	var wg sync.WaitGroup
	for _, side := range []struct{ p, peer *Port }{{a, b}, {b, a}} {
		wg.Go(func() {
			w := NewWaiter(side.p)
			defer w.Close()
			var out, in packetio.Batch
			sent, got := 0, 0
			for got < total || sent < total {
				for sent < total && sent-got < 16 { // both sides run in step, so no queue overflows
					out.Reset()
					out.Add(0, []byte{byte(sent), byte(sent >> 8)})
					side.p.Send(&out)
					sent++
				}
				if n, _ := side.p.Recv(&in); n == 0 && got < total {
					w.Wait(time.Second)
					continue
				}
				for _, f := range in.Frames {
					if v := int(f.Data[0]) | int(f.Data[1])<<8; v != got {
						t.Errorf("frame %d, want %d", v, got)
						return
					}
					got++
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkSendRecv(b *testing.B) {
	x, y := Pair(Config{})
	var out, in packetio.Batch
	for range 16 {
		out.Add(0, make([]byte, 100))
	}
	b.ReportAllocs()
	for b.Loop() {
		x.Send(&out)
		y.Recv(&in)
	}
}
