package serialize

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// Draining reports whether a server whose last rule was removed may still have requests in flight
// on a shared connection. While the result is true, the caller also calls Bypass for packets of flows
// that no rule covers. Bypass drops those requests to such a server that must not overtake the
// requests on the shared connection.
func (m *Machine) Draining() bool { return len(m.leaving) > 0 }

// drain forgets the words of each server that has no rules any more, once no request is in flight
// on its shared connections. From then on the switch does not track these words. When a rule is
// added again, they may have any value.
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
		if l.conn.Requests.Outstanding()+l.conn.Requests.Queued() > 0 {
			return true
		}
	}
	return false
}

// Bypass checks a packet to a server if no sequencer handles its flow: the flow is not tracked, for
// example because the table of flows was full, or no rule of this machine covers the flow any more.
// Bypass drops two kinds of requests, and the sender's NIC retransmits them. The first kind may
// change a word that allows no request on a client's connection now, for example because a request
// for the word is in flight on a shared connection. The second kind are first requests of a new
// connection to a server whose last rule was removed. They wait while the server may still execute
// older requests that clients have given up; see former.go.
func (m *Machine) Bypass(c *pipeline.Ctx, r *conntrack.Flow, p *pipeline.Parsed) pipeline.Verdict {
	if !p.BTH.Opcode.Is(wire.OpRequest) {
		return pipeline.Forward()
	}
	s := m.byAddr[p.DstAddr()]
	if s == nil {
		s = m.leaving[p.DstAddr()]
		if s != nil && r != nil && !r.HasAcked && s.hasFormers(c.Now, r.Requester) {
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
	// The switch will not see the answer, so it never reports to the word that the operation has
	// ended. The word waits until no NIC would retransmit the request any more.
	if d := m.words.ClientAll(c.Now, s.index, va, n); d.Kind == atomiccache.Wait {
		m.stats.Bypassed++
		return pipeline.Drop(ReasonBusy)
	}
	return pipeline.Forward()
}

// target returns the address, length and R_Key that a request names. n is 0 if the request names no
// memory. For an ATOMIC_WRITE, n is always the length of a word, whatever length the request
// claims: the request may change the whole word.
func target(f *wire.Frame) (va uint64, n uint32, rkey uint32) {
	if va, n, rkey, _ = transform.Target(f); f.BTH.Opcode == wire.RCAtomicWrite {
		n = transform.WordLen
	}
	return va, n, rkey
}
