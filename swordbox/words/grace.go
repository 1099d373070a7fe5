package words

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Grace tells, for one direction of a connection, a time before which everything that was forwarded on it has been
// answered. A word may leave Pass only when that is true of all connections to its server for the time when the
// word was made: what went before was not counted. The zero value is ready to use.
type Grace struct {
	mark  wire.PSN
	at    clock.Time // when mark was next to be sent
	clean clock.Time
	open  bool
}

// Clean is that time. next is the PSN that the requester will use next, acked the first one that is not answered; both
// are of the same PSN space. Call it now and then: it moves on when all that was outstanding at the call before is
// answered.
func (g *Grace) Clean(now clock.Time, next, acked wire.PSN) clock.Time {
	switch {
	case wire.Diff(acked, next) >= 0:
		g.open = false
		g.clean = now.Add(1) // nothing is on its way
	case !g.open:
		g.mark, g.at, g.open = next, now, true
	case wire.Diff(acked, g.mark) >= 0:
		g.clean = g.at
		g.mark, g.at = next, now
	}
	return g.clean
}
