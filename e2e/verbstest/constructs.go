package verbstest

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	"github.com/rdmalab/rdmalab/redn"
)

const (
	// Constructs is the number of constructs of package redn that Construct knows.
	Constructs = 8
	// ConstructData is the length of the data of a construct. The first constructWords bytes are its
	// operands and results; the rest are addresses and scratch words.
	ConstructData  = constructWords + 40
	constructWords = 64
)

// Construct appends construct number kind (0 to Constructs-1) with random operands to the queue
// main, and its conditional requests to the managed queue second. data is the memory of the
// construct. Construct fills d with the bytes that the caller writes to data before the NIC
// executes the program. It returns the bytes that the beginning of data must have afterwards,
// computed by the same statement in Go.
func Construct(rnd *rand.Rand, kind int, main, second *redn.Queue, data redn.Mem, d []byte) (want []byte) {
	word := func(off int) redn.Mem { return data.At(off, 8) }
	for j := range constructWords / 8 {
		binary.LittleEndian.PutUint64(d[8*j:], rnd.Uint64())
	}
	y := redn.Operand(rnd.Uint64N(1 << 48))
	if rnd.IntN(2) == 0 { // in half of the cases x equals y or differs in one bit
		x := uint64(y)
		if rnd.IntN(2) == 0 {
			x ^= 1 << rnd.IntN(48)
		}
		binary.LittleEndian.PutUint64(d, x)
	}
	want = bytes.Clone(d[:constructWords])
	get := func(off int) []byte { return want[off : off+8] }
	equal := binary.LittleEndian.Uint64(d)&(1<<48-1) == uint64(y)
	switch kind {
	case 0:
		main.If(second, word(0), y, word(8), word(16), word(64))
		if equal {
			copy(get(8), get(16))
		}
	case 1:
		main.IfElse(second, word(0), y, word(8), word(16), word(24), word(64))
		if equal {
			copy(get(8), get(16))
		} else {
			copy(get(8), get(24))
		}
	case 2:
		main.Move(word(8), word(16))
		main.Move(word(0), word(8))
		copy(get(8), get(16))
		copy(get(0), get(8))
	case 3:
		at := 8 * rnd.IntN(8)
		binary.BigEndian.PutUint64(d[72:], word(at).Addr)
		main.Load(second, word(48), word(72), data.RKey)
		copy(get(48), get(at))
	case 4:
		at := 8 * rnd.IntN(8)
		from := 8 * rnd.IntN(at/8+1)
		binary.BigEndian.PutUint64(d[72:], word(from).Addr)
		binary.LittleEndian.PutUint64(d[80:], uint64(at-from))
		main.LoadIndexed(second, word(48), word(72), word(80), data.RKey, word(88), word(96))
		copy(get(48), get(at))
	case 5: // 1 to 20 bytes, equal, or different in one bit
		y := bytes.Clone(d[:1+rnd.IntN(20)])
		if rnd.IntN(2) == 0 {
			y[rnd.IntN(len(y))] ^= 1 << rnd.IntN(8)
		}
		if bytes.Equal(y, d[:len(y)]) {
			copy(get(40), get(32))
		}
		main.IfBytes(second, data.At(0, len(y)), y, word(40), word(32), word(96))
	case 6, 7:
		binary.LittleEndian.PutUint64(d[72:], uint64(y))
		x := redn.Operand(binary.LittleEndian.Uint64(d) & (1<<48 - 1))
		if kind == 6 {
			main.IfAtMost(second, word(0), y, word(72), word(40), word(32), word(80), word(96))
		} else {
			main.IfAtLeast(second, word(0), y, word(72), word(40), word(32), word(80), word(96))
		}
		if kind == 6 && x <= y || kind == 7 && x >= y {
			copy(get(40), get(32))
		}
	}
	return want
}
