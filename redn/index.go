package redn

import "github.com/rdmalab/rdmalab/softrnic/sendring"

// wordLen is the length of an address and of a word of atomics.
const wordLen = 8

// reversed returns the bytes of m as pieces, the last byte first. A READ that scatters data over
// these pieces changes the byte order.
func reversed(m Mem) []Mem {
	pieces := make([]Mem, m.Len)
	for i := range pieces {
		pieces[i] = m.At(m.Len-1-i, 1)
	}
	return pieces
}

// LoadIndexed appends requests that copy to dst the bytes at the address base + index. This is what
// the x86 instruction mov with indexed addressing does. The base is at pointer, 8 bytes, big-endian
// as in entries; the index is at index, 8 bytes, little-endian as in atomics.
//
// An ADD makes the sum in word, after a READ has filled in its addend. word and scratch have 8
// bytes each that may be overwritten. `on` and key are as in Load.
func (q *Queue) LoadIndexed(on *Queue, dst, pointer, index Mem, key uint32, word, scratch Mem) {
	word = word.At(0, wordLen)
	add := on.Add(sendring.Signalled, word, scratch.At(0, wordLen), 0)
	q.Read(0, index.At(0, wordLen), reversed(add.Value())...)
	q.Read(sendring.Signalled, pointer.At(0, wordLen), reversed(word)...)
	q.decide(on)
	load := on.Read(sendring.Signalled, Mem{RKey: key}, dst)
	q.Read(sendring.Signalled, word, reversed(load.Remote())...)
	q.decide(on)
}
