package redn

import "github.com/rdmalab/rdmalab/softrnic/sendring"

// wordLen is the length of an address and of a word of atomics.
const wordLen = 8

// reversed returns the bytes of m as pieces, last one first: a READ that scatters over them changes
// the byte order.
func reversed(m Mem) []Mem {
	pieces := make([]Mem, m.Len)
	for i := range pieces {
		pieces[i] = m.At(m.Len-1-i, 1)
	}
	return pieces
}

// LoadIndexed appends: copy to dst the bytes at the address that is at pointer plus the number that is
// at index: mov with indexed addressing. The address has 8 bytes, big-endian, as entries have it; the
// index has 8 bytes, little-endian, as atomics have it. The sum is made in word, 8 bytes that may be
// overwritten, and an ADD whose addend a READ has filled in; scratch is 8 more. on and key are as in
// Load.
func (q *Queue) LoadIndexed(on *Queue, dst, pointer, index Mem, key uint32, word, scratch Mem) {
	word = word.At(0, wordLen)
	add := on.Add(sendring.Signalled, word, scratch.At(0, wordLen), 0)
	q.Read(0, index.At(0, wordLen), reversed(add.Value())...)
	q.Read(sendring.Signalled, pointer.At(0, wordLen), reversed(word)...)
	q.Wait(q.Done)
	q.Enable(on)
	q.Wait(on.Done)
	load := on.Read(sendring.Signalled, Mem{RKey: key}, dst)
	q.Read(sendring.Signalled, word, reversed(load.Remote())...)
	q.Wait(q.Done)
	q.Enable(on)
	q.Wait(on.Done)
}
