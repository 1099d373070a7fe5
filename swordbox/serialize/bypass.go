package serialize

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// Draining reports whether a server whose last rule was removed may still have requests in flight
// on a shared connection. While it is true, Bypass must see the requests to such a server on flows
// without a rule, because some of them must wait until the requests on the shared connection have
// ended.
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
		if l.conn.Outstanding()+l.conn.Queued() > 0 {
			return true
		}
	}
	return false
}

// Bypass checks a packet to a server if no sequencer handles its flow: the flow is not tracked, for
// example because the table of flows was full, or no rule of this machine covers the flow any more.
// Bypass drops two kinds of requests, and the sender's NIC retransmits them. The first kind may
// change a word for which a request is in flight on a shared connection. The second kind are the
// first requests of a new connection to a server whose last rule was removed, as long as the server
// may still execute older requests that their clients have given up; see former.go.
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

// A queue pair that the server has never answered may not exist: a host can forge requests to any
// QPN. The switch cannot tell whether the server executes such a request. So each word that the
// request touches waits until no NIC would retransmit the request any more, and until then the
// switch replaces no atomic on that word. One forged packet that claims to be the first of a
// message of four gigabytes must not have that effect on all words of a server. The limit applies
// to a connection that the server has never answered and that the connection manager has not
// announced: there a WRITE may touch at most maxStrange words. The switch drops a request that
// claims more, and its sender retransmits it. The search for the words costs time, so scanBurst and
// scanEach limit it, too.

const (
	// maxStrange is how many words a WRITE may touch on a connection that the server has never
	// answered: as many as fit into the largest packet.
	maxStrange = 4096 / 8
	// scanBurst and scanEach bound how many words the switch examines for such WRITEs: on average
	// one word per scanEach, and at most scanBurst words (two full tables of words) in a burst.
	scanBurst = 1 << 17
	scanEach  = time.Microsecond
)

// scans is the budget of the search for words: left is how many words the switch may still examine,
// as of the time at.
type scans struct {
	left int
	at   clock.Time
}

// admits reports whether the switch may forward a WRITE or an atomic on a connection that the
// server has never answered. The request may change the n bytes at va. The result is false if they
// contain more than maxStrange words of the table, or if the budget of the search is used up.
func (m *Machine) admits(now clock.Time, s *server, va uint64, n uint32) bool {
	b := &m.scans
	if earned := now.Sub(b.at) / scanEach; earned > 0 {
		b.left, b.at = int(min(int64(b.left)+int64(earned), scanBurst)), now
	}
	ok := b.left > 0
	if ok {
		var looked int
		ok, looked = m.words.AtMost(s.index, va, n, maxStrange)
		b.left -= looked
	}
	if !ok {
		m.stats.Unadmitted++
	}
	return ok
}

// Untracked handles a packet that belongs to no flow, as Bypass does. The switch knows nothing
// about the connection of such a packet, so it also drops a WRITE that admits refuses.
func (m *Machine) Untracked(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	s := m.byAddr[p.DstAddr()]
	if s == nil {
		s = m.leaving[p.DstAddr()]
	}
	if s != nil && s.watch && p.BTH.Opcode.Is(wire.OpWrite) && p.BTH.Opcode.Is(wire.OpRequest) {
		if va, n, _ := target(&p.Frame); n > 0 && !m.admits(c.Now, s, va, n) {
			return pipeline.Drop(ReasonBusy)
		}
	}
	return m.Bypass(c, nil, p)
}
