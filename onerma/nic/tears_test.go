//go:build !race

package nic

// The race detector takes each of these copies for a race, and it is one: programs of other
// processes share the memory, and only words are whole.

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// pairs makes a word with equal halves.
func pairs(v uint64) uint64 { return v&0xffffffff | v<<32 }

func isTorn(word uint64) bool { return uint32(word) != uint32(word>>32) }

// sharedWords makes words that are also bytes.
func sharedWords(n int) ([]uint64, []byte) {
	words := make([]uint64, n)
	return words, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), wordLen*n)
}

// meanwhile calls f again and again in another goroutine while the test runs the rest.
func meanwhile(t *testing.T, f func(step uint64)) {
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for step := uint64(0); !stop.Load(); step++ {
			f(step)
		}
	}()
	t.Cleanup(func() { stop.Store(true); <-done })
}

// eachCopy runs a test for copies of one length at an offset in bytes. So many of them tear some
// words, of some lengths thousands, if each is one call of copy. Whole words of the copy are those
// from first up to, but not including, end.
func eachCopy(t *testing.T, test func(t *testing.T, off, n, first, end, rounds int)) {
	for _, c := range []struct{ off, n, rounds int }{
		{0, 12, 4_000_000}, {0, 20, 2_000_000}, {60, 12, 5_000_000}, {60, 16, 5_000_000}, {0, 300, 500_000}, {60, 1000, 100_000}, {0, 4088, 100_000},
	} {
		t.Run(fmt.Sprintf("%d at %d", c.n, c.off), func(t *testing.T) {
			test(t, c.off, c.n, (c.off+wordLen-1)/wordLen, (c.off+c.n)/wordLen, c.rounds)
		})
	}
}

// A program stores words while the NIC reads them for a body.
func TestSourceTearsNoWord(t *testing.T) {
	eachCopy(t, func(t *testing.T, off, n, first, end, rounds int) {
		words, memory := sharedWords(514)
		r := register(t, mem.New(rand.New(rand.NewPCG(1, 1)), 0), memory, verbs.LocalWrite|verbs.RemoteRead)
		meanwhile(t, func(step uint64) {
			atomic.StoreUint64(&words[first+int(step)%(end-first)], pairs(step))
		})
		s, torn := &sealer{}, 0
		for range rounds {
			body, err := s.source(r, off, n)
			if err != nil {
				t.Fatal(err)
			}
			for i := first; i < end; i++ {
				if isTorn(binary.NativeEndian.Uint64(body[wordLen*i-off:])) {
					torn++
				}
			}
		}
		if torn > 0 {
			t.Errorf("%d words are torn in %d bodies", torn, rounds)
		}
	})
}

// A program reads and stores words while the NIC stores a body. The NIC must store a word once: half
// of a word that it stores a second time tears what the program has stored between.
func TestLandingTearsNoWord(t *testing.T) {
	eachCopy(t, func(t *testing.T, off, n, first, end, rounds int) {
		words, memory := sharedWords(514)
		var torn atomic.Uint64
		meanwhile(t, func(step uint64) {
			word := &words[first+int(step/2)%(end-first)]
			if step%2 == 0 {
				atomic.StoreUint64(word, pairs(step))
			}
			if isTorn(atomic.LoadUint64(word)) {
				torn.Add(1)
			}
		})
		memory = memory[off:][:n]
		var buffers [2][4096 + wordLen]byte
		var bodies [2][]byte
		for i := range bodies {
			bodies[i] = alike(buffers[i][:], memory)[:n]
			copy(bodies[i], bytes.Repeat([]byte{byte(i)}, n))
		}
		for step := range rounds {
			copyWords(memory, bodies[step%2])
		}
		if torn.Load() > 0 {
			t.Errorf("a program has seen %d torn words during %d stores", torn.Load(), rounds)
		}
	})
}

// A program replaces each value that it sees the NIC store. A value that is there again was stored
// twice, and what the program stored between is lost.
func TestWordsAreStoredOnce(t *testing.T) {
	for _, n := range []int{24, 72, 136, 200, 408} {
		words, memory := sharedWords(n / wordLen)
		values, body := sharedWords(n / wordLen)
		taken := make([]uint64, len(words))
		var twice atomic.Uint64
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			meanwhile(t, func(uint64) {
				for i := range words {
					switch v := atomic.LoadUint64(&words[i]); {
					case v%2 == 0: // the program's own value
					case v == taken[i]:
						twice.Add(1)
					case atomic.CompareAndSwapUint64(&words[i], v, v+1):
						taken[i] = v
					}
				}
			})
			for v := range uint64(1_000_000) {
				for i := range values {
					values[i] = 2*v + 1
				}
				copyWords(memory, body)
			}
		})
		if k := twice.Load(); k > 0 {
			t.Errorf("%d times a word was stored twice by a copy of %d bytes", k, n)
		}
	}
}
