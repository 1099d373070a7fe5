package hard

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Who has never been answered may be nobody: a host can make up requests to queue pairs that do not exist. One of them may be
// executed all the same, for the switch does not know either way; so the words that it touches count on it until no NIC would
// send it again, and meanwhile nothing stands for their atomics. That must not be had for all words of a server at the price of
// one packet that claims to be the first of four gigabytes. So from a connection that the server has never answered, and the
// connection manager never announced, a WRITE may touch no more words than one packet can; what claims more is dropped, and its
// sender tries again. Looking for words costs time, too, and is rationed.

const (
	// maxStrange is how many words a WRITE of a connection without any answer may touch: as many as the largest packet holds.
	maxStrange = 4096 / 8
	// scanBurst and scanEach bound the words that are looked at for such WRITEs: a million a second, two full tables at once.
	scanBurst = 1 << 17
	scanEach  = time.Microsecond
)

// scans is what may still be looked at.
type scans struct {
	left int
	at   clock.Time
}

// admits reports whether a WRITE or an atomic of somebody who was never answered may touch what it names.
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

// isStrange reports whether nobody has shown yet that the lane's connection exists.
func (l *lane) isStrange() bool { return !l.hasMSN && !l.row.Synced && !l.row.HasAcked }

// Untracked looks at a packet that no row is for: see Bypass. Nothing is known of its sender.
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
	return m.Bypass(c, p)
}
