package metrics

import (
	"runtime"
	"testing"
)

// A goroutine and memory that is in use show up.
func TestSelf(t *testing.T) {
	runtime.GC()
	before := Self()
	const size = 32 << 20
	held, done := make([]byte, size), make(chan struct{})
	go func() { <-done }()
	runtime.GC()
	now := Self()
	close(done)
	if now.Goroutines <= before.Goroutines || now.LiveHeap < before.LiveHeap+size/2 {
		t.Errorf("before %+v, now %+v", before, now)
	}
	runtime.KeepAlive(held)
}
