package serialize

import (
	"net/netip"
	"strings"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// maxWords is how many words of a server the state cache can hold. Atomics on other words are sent
// unchanged.
const maxWords = 1 << 16

// word is a memory word in the state cache. Its value is the one after all atomics that were sent
// on the borrowed connection so far. The cache does not see WRITEs (hole 16) and operations that
// reach the word on another connection (hole 19). It keeps the value after a loss or a restart of
// the server (hole 19).
type word struct {
	va    uint64
	known bool
	value uint64
}

// word returns the word at an address. It adds the word if the cache does not have it; nil if the
// cache is full.
func (s *server) word(va uint64) *word {
	w := s.words[va]
	if w == nil && len(s.words) < maxWords {
		w = &word{va: va}
		s.words[va] = w
	}
	return w
}

// decide computes the outcome of an atomic on a known word. prior is the original value, which the
// atomic returns; value is the value that the WRITE writes. A CMP_SWAP that fails writes the value
// that the word already has (hole 15).
func (w *word) decide(f *wire.Frame) (prior, value uint64) {
	prior, value = w.value, transform.Result(f.BTH.Opcode, f.AtomicETH.Compare, f.AtomicETH.SwapOrAdd, w.value)
	w.value = value
	return prior, value
}

// learn sets the cached value of a word from the first response to an atomic that was sent
// unchanged. Other atomics on the word may be in flight at that time (hole 18).
func (e *entry) learn(original uint64) {
	if w := e.word; w != nil && !w.known {
		w.known, w.value = true, transform.Result(e.op, e.compare, e.next, original)
	}
}

// replace changes an atomic into a WRITE of the decided value. The paper's code copies the bytes of
// the operand unchanged, which reverses the bytes of the word on a little-endian server. This hole
// (45) is closed here, because it would hide all the others.
func (m *Machine) replace(f *wire.Frame, value uint64) { transform.ToWrite(f, value, &m.payload) }

// SetRules takes new rules. If those of a server have changed, the machine may not have seen all
// atomics, so it forgets the server's words.
func (m *Machine) SetRules(set *rules.Set) {
	m.rules = set
	for _, s := range m.order {
		if now := m.rulesOf(s.addr); now != s.rules {
			s.rules = now
			clear(s.words)
		}
	}
}

// rulesOf returns the text of the rules for requests to a server.
func (m *Machine) rulesOf(a netip.Addr) string {
	var text strings.Builder
	for _, r := range m.rules.Lookup(a) {
		text.WriteString(r.String() + "\n")
	}
	return text.String()
}

// ForgetWords forgets the words of all servers. It is called for an operator, and returns how many
// of them were known.
func (m *Machine) ForgetWords() (n int) {
	for _, s := range m.order {
		for _, w := range s.words {
			if w.known {
				n++
			}
		}
		clear(s.words)
	}
	return n
}
