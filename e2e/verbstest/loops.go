package verbstest

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
)

// Places in the data of a loop.
const (
	loopTable   = 0 // loopWords words
	loopWords   = 16
	loopPointer = 8 * loopWords // the address of the table, big-endian
	loopIndex   = loopPointer + 8
	loopFound   = loopIndex + 8
	loopWord    = loopFound + 8
	loopScratch = loopWord + 8
	loopPool    = loopScratch + 8

	// LoopData is the length of the data of a loop in bytes. LoopPool is the offset in it of the
	// loop's pool of constants, which extends to the end of the data.
	LoopData = loopPool + 512
	LoopPool = loopPool

	// SearchBlocks and SearchOnBlocks are the sizes, in blocks, of the rings of a recycled loop;
	// UnrolledBlocks and UnrolledOnBlocks are those of an unrolled one.
	SearchBlocks, SearchOnBlocks     = 64, 4
	UnrolledBlocks, UnrolledOnBlocks = 128, 8

	// unrolledRuns is how many iterations an unrolled loop has.
	unrolledRuns = 8
	// searched is the operand that a recycled loop looks for, wanted that of an unrolled one.
	searched redn.Operand = 0x123456789abc
	wanted   redn.Operand = 7
)

// Search appends the requests of a recycled loop to its queues q and on:
//
//	for found != searched { found = table[index/8]; index += 8 }
//
// exit are the 8 bytes that replace the beginning of the loop's last request when the loop ends.
func Search(l *redn.Loop, q, on *redn.Queue, data, exit redn.Mem) error {
	word := func(off int) redn.Mem { return data.At(off, 8) }
	q.LoadIndexed(on, word(loopFound), word(loopPointer), word(loopIndex), data.RKey, word(loopWord), word(loopScratch))
	q.Add(sendring.Signalled, word(loopIndex), word(loopScratch), 8)
	q.Wait(q.Done)
	dst, _ := l.Exit()
	q.If(on, word(loopFound), searched, dst, exit, word(loopScratch))
	return l.End()
}

// SearchInput fills d with a random input of Search; the caller writes d to the beginning of the
// data before the loop starts. d has a table of random words, which contains the operand searched
// once or twice, and the index at which the search begins. SearchInput returns the expected index
// at the end of the search.
func SearchInput(rnd *rand.Rand, data redn.Mem, d []byte) (end uint64) {
	for i := range loopWords {
		binary.LittleEndian.PutUint64(d[loopTable+8*i:], rnd.Uint64())
	}
	for _, i := range []int{rnd.IntN(loopWords), loopWords - 1} {
		high := rnd.Uint64() << 48 // the upper 16 bits of a word do not belong to the operand
		binary.LittleEndian.PutUint64(d[loopTable+8*i:], high|uint64(searched))
	}
	end = uint64(8 * rnd.IntN(2))
	binary.LittleEndian.PutUint64(d[loopIndex:], end)
	binary.BigEndian.PutUint64(d[loopPointer:], data.Addr+loopTable)
	for {
		found := binary.LittleEndian.Uint64(d[loopTable+end:]) & (1<<48 - 1)
		if end += 8; found == uint64(searched) {
			return end
		}
	}
}

// LoopEnd returns the index at the end of a search, or how many iterations an unrolled loop has
// executed. d is the data after the loop.
func LoopEnd(d []byte) uint64 { return binary.LittleEndian.Uint64(d[loopIndex:]) }

// Unrolled appends an unrolled loop with a break:
//
//	for i := range 8 { found = table[i]; index++; if found == wanted { break } }
func Unrolled(pool *redn.Pool, q, on *redn.Queue, data redn.Mem) error {
	word := func(off int) redn.Mem { return data.At(off, 8) }
	_, err := q.Unrolled(pool, on, unrolledRuns, word(loopFound), wanted, word(loopScratch), func(i int) {
		q.Move(word(loopFound), word(loopTable+8*i))
		q.Add(sendring.Signalled, word(loopIndex), word(loopScratch), 1)
	})
	return err
}

// UnrolledInput fills d with a random input of Unrolled; the caller writes d to the beginning of
// the data before the loop starts. It returns how many iterations the loop must execute, and
// whether a break ends it.
func UnrolledInput(rnd *rand.Rand, d []byte) (iterations uint64, broken bool) {
	binary.LittleEndian.PutUint64(d[loopIndex:], 0)
	for i := range unrolledRuns {
		x := uint64(wanted) // three of four words differ from it in one bit
		if rnd.IntN(4) != 0 {
			x ^= 1 << rnd.IntN(48)
		}
		binary.LittleEndian.PutUint64(d[loopTable+8*i:], x|rnd.Uint64()<<48)
	}
	for iterations < unrolledRuns && !broken {
		broken = binary.LittleEndian.Uint64(d[loopTable+8*iterations:])&(1<<48-1) == uint64(wanted)
		iterations++
	}
	return iterations, broken
}
