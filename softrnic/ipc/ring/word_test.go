package ring

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Two sides each publish a word and then read the other's: at least one must see the other's word,
// or both would go to sleep. This holds in a build with the race detector, too. The control uses a
// plain atomic store, with which it holds only without the race detector.
func TestPublishThenLook(t *testing.T) {
	b, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Munmap(b); err != nil {
			t.Error(err)
		}
	}()
	if n, of := bothBlind(b, (*Shared).Store); n != 0 {
		t.Errorf("%d times of %d neither side saw the other", n, of)
	}
	n, of := bothBlind(b, func(w *Shared, v uint64) { w.Uint64.Store(v) })
	t.Logf("with plain stores: %d times of %d", n, of)
}

// bothBlind counts how often neither side has seen the word that the other published, within a
// second.
func bothBlind(b []byte, store func(w *Shared, v uint64)) (n, of int) {
	x, y := WordAt(b, 0), WordAt(b, 128)
	sawX, sawY := WordAt(b, 256), WordAt(b, 384)
	round, answered := WordAt(b, 512), WordAt(b, 640)
	const last = 1<<64 - 1
	until := func(w *Shared, v uint64) uint64 {
		for i := 0; ; i++ {
			if got := w.Load(); got == v || got == last {
				return got
			}
			if i%256 == 255 {
				runtime.Gosched()
			}
		}
	}
	round.Store(0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for r := uint64(1); until(round, r) == r; r++ {
			store(y, 1)
			sawX.Store(x.Load())
			answered.Store(r)
		}
	}()
	for end := time.Now().Add(time.Second); of&63 != 0 || time.Now().Before(end); {
		of++
		r := uint64(of)
		x.Store(0)
		y.Store(0)
		round.Store(r)
		for range of % 64 {
			_ = answered.Load() // not always at the same moment as the other side
		}
		store(x, 1)
		sawY.Store(y.Load())
		until(answered, r)
		if sawX.Load() == 0 && sawY.Load() == 0 {
			n++
		}
	}
	round.Store(last)
	<-done
	return n, of
}
