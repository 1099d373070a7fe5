package nic

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Bodies of whole AES blocks that begin with a word are sealed where they are, all others from a
// copy.
func TestSource(t *testing.T) {
	memory := bytes.Repeat([]byte("0123456789abcdefghijklm"), 300)
	memory = memory[wordLen-phase(memory):] // begins with a word
	at := func(off, n int) {
		t.Helper()
		r := register(t, mem.New(rand.New(rand.NewPCG(1, 1)), 0), memory, verbs.LocalWrite|verbs.RemoteRead)
		s := &sealer{}
		got, err := s.source(r, off, n)
		if err != nil || !bytes.Equal(got, memory[off:off+n]) {
			t.Fatalf("%d bytes at %d: %q, %v; want %q", n, off, got, err, memory[off:off+n])
		}
		memory[off]++
		if direct, want := got[0] == memory[off], n%16 == 0 && off%8 == 0 && !raceEnabled; direct != want {
			t.Errorf("%d bytes at %d: the memory itself: %v, want %v", n, off, direct, want)
		}
		memory[off]--
		if _, err := s.source(r, len(memory)-n+1, n); err == nil {
			t.Errorf("%d bytes behind the end of a region were read", n)
		}
	}
	for off := range 2 * wordLen {
		for _, n := range []int{1, 8, 15, 16, 24, 64, 100, 4088, 4096} {
			at(off, n)
			at(len(memory)-n-off, n)
		}
	}
	memory = memory[3 : len(memory)-2] // a region that begins and ends inside a word
	for off := range wordLen {
		for n := 1; n < 3*wordLen; n++ {
			got, err := (&sealer{}).source(register(t, mem.New(rand.New(rand.NewPCG(1, 1)), 0), memory, verbs.RemoteRead), off, n)
			if err != nil || !bytes.Equal(got, memory[off:off+n]) {
				t.Fatalf("%d bytes at %d: %q, %v; want %q", n, off, got, err, memory[off:off+n])
			}
		}
	}
}

// A copy by words is a copy, and changes nothing beside it.
func TestCopyWords(t *testing.T) {
	from := []byte("the quick brown fox jumps over the lazy dog, and runs")
	var to, buffer [80]byte
	for off := range 2 * wordLen {
		for n := range len(from) - 1 {
			clear(to[:])
			dst := to[off : off+n]
			src := alike(buffer[:], to[off:])[:n]
			if phase(src) != phase(to[off:]) {
				t.Fatalf("offset %d: the buffer begins at byte %d of a word, the memory at %d", off, phase(src), phase(to[off:]))
			}
			copy(src, from)
			copyWords(dst, src)
			want := fmt.Sprintf("%s%s%s", make([]byte, off), from[:n], make([]byte, len(to)-off-n))
			if string(to[:]) != want {
				t.Fatalf("%d bytes at %d: %q", n, off, to)
			}
		}
	}
}
