package serialize

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// Draining reports whether a request may still be in flight on a shared connection to a server
// whose last rule was removed. Then Bypass must see the requests to that server on flows without a
// rule, because some of them must not be executed before the other one.
func (m *Machine) Draining() bool { return len(m.leaving) > 0 }

// drain ends the draining of each server without rules to which no request is in flight on shared
// connections. The switch then forgets the values of the server's words: it does not track them any
// more, and when a rule is added again they may have any value.
func (m *Machine) drain(now clock.Time) {
	for a, s := range m.leaving {
		if !s.moves && !s.busy() {
			m.words.Reset(now, s.index)
			delete(m.leaving, a)
		}
	}
}

// busy reports whether requests wait or are in flight on shared connections of the server.
func (s *server) busy() bool {
	for _, l := range s.links {
		if l.conn.Outstanding()+l.conn.Queued() > 0 {
			return true
		}
	}
	return false
}

// Bypass checks a packet to a server that no sequencer handles: its flow is not tracked, for
// example because the table of flows was full, or no rule of this machine covers the flow any more.
// A request that may change a word must wait while a request for that word is in flight on a shared
// connection: it is dropped, and its sender's NIC retransmits it. So must the first requests of a
// connection that begins while requests from before the last rule was removed may outlive the
// queue pairs of their clients; see former.
func (m *Machine) Bypass(c *pipeline.Ctx, r *conntrack.Flow, p *pipeline.Parsed) pipeline.Verdict {
	if !p.BTH.Opcode.Is(wire.OpRequest) {
		return pipeline.Forward()
	}
	s := m.byAddr[p.DstAddr()]
	if s == nil {
		s = m.leaving[p.DstAddr()]
		if s != nil && r != nil && !r.HasAcked && s.hasFormers(c.Now) {
			m.stats.TooEarly++
			return pipeline.Drop(ReasonBusy)
		}
	}
	if s == nil || !s.watch || !p.BTH.Opcode.Is(wire.OpWrite|wire.OpAtomic) {
		return pipeline.Forward()
	}
	va, n, _ := target(&p.Frame)
	if n == 0 || len(m.words.Overlapping(m.step.cover[:0], s.index, va, n)) == 0 {
		return pipeline.Forward()
	}
	// The switch will not see the answer, so the operation is never reported as ended: the word
	// waits for it until no NIC would retransmit it any more.
	if d := m.words.ClientAll(c.Now, s.index, va, n); d.Kind == atomiccache.Wait {
		m.stats.Bypassed++
		return pipeline.Drop(ReasonBusy)
	}
	return pipeline.Forward()
}

// target returns the address, length and R_Key that a request names. The length is 0 if the request
// names no memory. That of an ATOMIC_WRITE is not what it claims: whatever that is, it may change
// the word.
func target(f *wire.Frame) (va uint64, n uint32, rkey uint32) {
	switch {
	case f.BTH.Opcode == wire.RCAtomicWrite:
		return f.RETH.VA, transform.WordLen, f.RETH.RKey
	case f.BTH.Opcode.Has(wire.HasAtomicETH):
		return f.AtomicETH.VA, transform.WordLen, f.AtomicETH.RKey
	case f.BTH.Opcode.Has(wire.HasRETH):
		return f.RETH.VA, f.RETH.Length, f.RETH.RKey
	}
	return 0, 0, 0
}
