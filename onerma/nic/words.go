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
)

// phase returns at which byte of a word b begins.
func phase(b []byte) int { return int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) & inWord) }

// wholeWords reports whether b begins and ends with a word.
func wholeWords(b []byte) bool { return (phase(b)|len(b))&inWord == 0 }

// alike returns the part of buffer that begins at the same byte of a word as memory, so that
// copyWords can copy between them. It leaves out at most wordLen-1 bytes.
func alike(buffer, memory []byte) []byte {
	return buffer[(phase(memory)-phase(buffer))&inWord:]
}

// copyWords copies src to dst, which have the same length and begin at the same byte of a word. It
// loads and stores each word that lies in them at once: a program that changes or reads the words
// meanwhile never sees a part of one. One copy would not do that: for a length that is no multiple
// of wordLen, it loads and stores parts that overlap inside a word.
func copyWords(dst, src []byte) {
	if wholeWords(src) {
		copy(dst, src)
		return
	}
	first := min(-phase(src)&inWord, len(src))
	end := first + (len(src)-first)&^inWord
	copy(dst[:first], src)
	copy(dst[first:end], src[first:])
	copy(dst[end:], src[end:])
}

// wordsOf returns the bytes of all words in which the n bytes at offset off of a region lie, as far
// as they are in the region, and at which of them these n bytes begin. memory is these n bytes.
func wordsOf(r *mem.Region, memory []byte, off int) (words []byte, at int, err error) {
	if wholeWords(memory) {
		return memory, 0, nil
	}
	at = min(phase(memory), off)
	after := min(-(phase(memory)+len(memory))&inWord, r.Len()-off-len(memory))
	words, err = r.Span(off-at, at+len(memory)+after)
	return words, at, err
}
