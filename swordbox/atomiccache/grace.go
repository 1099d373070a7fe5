package atomiccache

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Grace computes, for one flow, a time such that every request that was forwarded before it has
// been answered. A word may leave Pass only when that time is later than the creation of the word
// on all flows to its server, because operations from before the creation were not counted. The
// zero value is ready to use.
type Grace struct {
	mark  wire.PSN
	at    clock.Time // when mark was the next PSN to be sent
	clean clock.Time
	open  bool // requests before mark are in flight
}

// Clean returns that time. next is the PSN that the requester will use next, acked the first one
// that is not answered; both are PSNs of the same end. It must be called regularly: the time
// advances when all requests that were in flight at an earlier call have been answered.
func (g *Grace) Clean(now clock.Time, next, acked wire.PSN) clock.Time {
	switch {
	case wire.Diff(acked, next) >= 0:
		g.open = false
		g.clean = now // nothing is in flight
	case !g.open:
		g.mark, g.at, g.open = next, now, true
	case wire.Diff(acked, g.mark) >= 0:
		g.clean = g.at
		g.mark, g.at = next, now
	}
	return g.clean
}
