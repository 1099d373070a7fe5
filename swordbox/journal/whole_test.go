package journal

import (
	"encoding/binary"
	"testing"
)

// The alternative to a fatal NAK is to store outside the process everything that a new incarnation
// needs in order to continue. For each moved request that is a map entry and a copy of the packet,
// with a checksum by which a partial entry is recognised. For each response it is an entry of the
// window of answered requests and the state of the word.
const (
	entryLen  = 64        // PSNs, decision, prior value
	copyLen   = 128       // headers from the BTH on, and a small payload
	largeCopy = 64 + 1024 // the same for a WRITE of one path MTU of 1024 bytes
	answerLen = slotLen   // entry of the completed window
	wordLen   = slotLen   // state, value, epoch
	slots     = 128       // ring of a connection
	wholeSize = slots * (1 << 12)
)

// BenchmarkWholeState measures the cost of storing all that for a request and its response, for
// comparison with BenchmarkAnswered.
func BenchmarkWholeState(b *testing.B) {
	for name, n := range map[string]int{"atomic": copyLen, "write1024": largeCopy} {
		b.Run(name, func(b *testing.B) {
			mem, packet := make([]byte, wholeSize), make([]byte, n)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				s := mem[i%slots*(1<<12):]
				for at := 0; at < entryLen; at += 8 {
					binary.LittleEndian.PutUint64(s[at:], uint64(i))
				}
				copy(s[entryLen:], packet)
				for at := 0; at < entryLen+n; at += sumAt { // the checksum covers entry and copy
					seal(s[at : at+slotLen])
				}
				answer := s[2048 : 2048+answerLen]
				binary.LittleEndian.PutUint64(answer, uint64(i))
				seal(answer)
				word := s[3072 : 3072+wordLen]
				binary.LittleEndian.PutUint64(word, uint64(i))
				seal(word)
				i++
			}
		})
	}
}
