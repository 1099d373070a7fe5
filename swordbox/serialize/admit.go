package serialize

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// A queue pair that the server has never answered may not exist: a host can forge requests to any
// QPN. The switch cannot tell whether the server executes such a request. So it replaces no atomic
// on a word that the request touches until no NIC would retransmit the request any more. One forged
// packet that claims to be the first of a message of four gigabytes must not have that effect on
// all words of a server. So on a connection that the server has never answered and that the
// connection manager has not announced, a WRITE may touch at most maxStrange words. The switch
// drops a request that claims more, and its sender retransmits it. The search for the words takes
// time, so scanBurst and scanEach limit the search.

const (
	// maxStrange is how many words a WRITE may touch on a connection that the server has never
	// answered: as many as fit into the largest packet.
	maxStrange = 4096 / 8
	// scanBurst and scanEach bound how many words the switch examines for WRITEs on connections
	// that the server has never answered: on average one word per scanEach, and at most scanBurst
	// words (two full tables of words) in a burst.
	scanBurst = 1 << 17
	scanEach  = time.Microsecond
)

// scans is the budget of the search for words: left is how many words the switch may still examine,
// and at is the time up to which left has grown.
type scans struct {
	left int
	at   clock.Time
}

// admits reports whether the switch may forward a WRITE on a connection that the server has never
// answered, or that the switch does not track. The WRITE may change the n bytes at va. The result
// is false if these bytes contain more than maxStrange words of the table, or if the budget for
// searching the table (scans) is used up.
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
