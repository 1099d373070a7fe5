package nic

import (
	"unsafe"

	"github.com/rdmalab/rdmalab/softrnic/mem"
)

// wordLen is the length of a word in bytes. A word begins at an address that is a multiple of it.
// x&inWord is x modulo wordLen, also for a negative x.
const (
	wordLen = 8
	inWord  = wordLen - 1
	// block is a length in bytes for which Go's function copy loads and stores no byte twice (see
	// copyWords).
	block = 256
)

// phase returns at which byte of a word b begins.
func phase(b []byte) int { return int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) & inWord) }

// wholeWords reports whether b consists of whole words: its address and its length are multiples of
// wordLen.
func wholeWords(b []byte) bool { return (phase(b)|len(b))&inWord == 0 }

// alike returns the part of buffer that begins at the same byte of a word as memory, so that
// copyWords can copy between them. It leaves out at most wordLen-1 bytes.
func alike(buffer, memory []byte) []byte {
	return buffer[(phase(memory)-phase(buffer))&inWord:]
}

// copyWords copies src to dst, which have the same length and begin at the same byte of a word. It
// stores each word that lies in them once and as a whole. So a program that reads a word meanwhile
// never sees a part of it, and if the program stores a new value after the NIC, the NIC does not
// overwrite this value. A single call of copy would not do that: for most lengths, it loads and
// stores parts that overlap.
func copyWords(dst, src []byte) {
	first := min(-phase(src)&inWord, len(src))
	copy(dst[:first], src)
	dst, src = dst[first:], src[first:]
	for len(src) >= block {
		copy(dst[:block], src[:block])
		dst, src = dst[block:], src[block:]
	}
	for len(src) >= wordLen {
		*(*uint64)(unsafe.Pointer(&dst[0])) = *(*uint64)(unsafe.Pointer(&src[0]))
		dst, src = dst[wordLen:], src[wordLen:]
	}
	copy(dst, src)
}

// wordsOf returns the bytes of all words that memory overlaps, as far as they are in region r.
// memory begins at offset off of the region, and at words[at].
func wordsOf(r *mem.Region, memory []byte, off int) (words []byte, at int, err error) {
	if wholeWords(memory) {
		return memory, 0, nil
	}
	at = min(phase(memory), off)
	after := min(-(phase(memory)+len(memory))&inWord, r.Len()-off-len(memory))
	words, err = r.Span(off-at, at+len(memory)+after)
	return words, at, err
}
