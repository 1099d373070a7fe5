package hard

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rewrite"
	"github.com/rdmalab/rdmalab/swordbox/words"
)

// Draining reports whether a server whose last rule has gone may still be sent a request that stands for an atomic: then
// Bypass must see what goes to it on rows without a rule, for nobody may get in before that request.
func (m *Machine) Draining() bool { return len(m.leaving) > 0 }

// drain lets servers without rules go, once nothing is under way to them. With them goes what is known of their words:
// nobody looks after these any more, and if there is a rule again one day, they may hold anything.
func (m *Machine) drain(now clock.Time) {
	for a, s := range m.leaving {
		if !s.moves && !s.busy() {
			m.words.Reset(now, s.index)
			delete(m.leaving, a)
		}
	}
}

// busy reports whether requests are under way on shared connections of the server.
func (s *server) busy() bool {
	for _, l := range s.links {
		if l.conn.Outstanding()+l.conn.Queued() > 0 {
			return true
		}
	}
	return false
}

// Bypass looks at a packet on its way to a server that no lane is for: it is not tracked, because the table was full or for
// another reason, or no rule of this machine is for its row any more. One that changes a word which the switch believes to know must wait: it is dropped, and its sender's NIC
// will try again.
func (m *Machine) Bypass(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	s := m.byAddr[p.DstAddr()]
	if s == nil {
		s = m.leaving[p.DstAddr()]
	}
	if s == nil || !s.watch || !p.BTH.Opcode.Is(wire.OpWrite|wire.OpAtomic) || !p.BTH.Opcode.Is(wire.OpRequest) {
		return pipeline.Forward()
	}
	va, n, _ := target(&p.Frame)
	if n == 0 || len(m.words.Overlapping(m.cover[:0], s.index, va, n)) == 0 {
		return pipeline.Forward()
	}
	// It is never ended, because nobody knows its answer: it counts until no NIC would send it again.
	if d := m.words.OwnAll(c.Now, s.index, va, n); d.Kind == words.Wait {
		m.stats.Bypassed++
		return pipeline.Drop(ReasonBusy)
	}
	return pipeline.Forward()
}

// target is what a request names: address, length, key. The length is 0 if it names none.
func target(f *wire.Frame) (va uint64, n uint32, rkey uint32) {
	switch {
	case f.BTH.Opcode.Has(wire.HasAtomicETH):
		return f.AtomicETH.VA, rewrite.WordLen, f.AtomicETH.RKey
	case f.BTH.Opcode.Has(wire.HasRETH):
		return f.RETH.VA, f.RETH.Length, f.RETH.RKey
	}
	return 0, 0, 0
}
