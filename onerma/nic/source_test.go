package nic

import (
	"bytes"
	"testing"
)

// Bodies of whole AES blocks are sealed where they are, all others from a copy.
func TestSource(t *testing.T) {
	s := &sealer{}
	for _, n := range []int{1, 8, 15, 16, 24, 64, 100, 4088, 4096} {
		memory := bytes.Repeat([]byte{7}, n)
		got := s.source(memory)
		if !bytes.Equal(got, memory) {
			t.Fatalf("%d bytes: others", n)
		}
		memory[0] = 8
		if direct, want := got[0] == 8, n%16 == 0 && !raceEnabled; direct != want {
			t.Errorf("%d bytes: the memory itself: %v, want %v", n, direct, want)
		}
	}
}
