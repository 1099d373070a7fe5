package paper

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/rewrite"
)

// maxWords bounds the state cache of a server. Atomics on further words pass through.
const maxWords = 1 << 16

// word is a memory word in the state cache: what it holds after everything that was sent so far. It knows atomics only:
// a WRITE to the word, or what goes another way, is not seen (holes 16 and 19), and no loss makes it forget (hole 19).
type word struct {
	va    uint64
	known bool
	value uint64
}

// word finds or makes the word at an address; nil if there is no room.
func (s *server) word(va uint64) *word {
	w := s.words[va]
	if w == nil && len(s.words) < maxWords {
		w = &word{va: va}
		s.words[va] = w
	}
	return w
}

// decide foresees an atomic on a known word: what it answers, and what is written. A CMP_SWAP that fails writes the value
// that the word has anyway (hole 15).
func (w *word) decide(f *wire.Frame) (prior, value uint64) {
	prior, value = w.value, after(f.BTH.Opcode, w.value, f.AtomicETH.Compare, f.AtomicETH.SwapOrAdd)
	w.value = value
	return prior, value
}

// after is what a word that held old holds after an atomic (IBTA 9.4.5).
func after(op wire.Opcode, old, compare, operand uint64) uint64 {
	switch {
	case op == wire.RCFetchAdd:
		return old + operand
	case old == compare:
		return operand
	}
	return old
}

// learn fills the cache from the first answer that comes, whatever else is on its way to the word (hole 18).
func (e *entry) learn(original uint64) {
	if w := e.word; w != nil && !w.known {
		w.known, w.value = true, after(e.op, original, e.compare, e.next)
	}
}

// replace turns an atomic into a WRITE of what was decided. The paper's code copies the bytes of the operand as they are,
// which mirrors the word on a little-endian server; that hole (45) is closed here, or nothing else could be seen.
func (m *Machine) replace(f *wire.Frame, value uint64) { rewrite.ToWrite(f, value, &m.payload) }
