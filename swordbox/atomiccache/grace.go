package atomiccache

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Grace computes the clean time of one flow: the server has answered all requests that the switch
// forwarded before the clean time. When a word is created, operations on it may already be in
// flight, and the word does not count them. So a word may leave Pass only when the clean times of
// all flows to its server are later than the word's creation. The zero value is ready to use.
type Grace struct {
	mark  wire.PSN
	at    clock.Time // when mark was the next PSN to be sent
	clean clock.Time
	open  bool // true if requests before mark are in flight
}

// Clean returns the clean time: all requests that were forwarded before it have been answered.
// `next` is the PSN that the requester will use next. acked is the first unanswered PSN. Both are
// PSNs of the same end. The caller calls Clean regularly: the clean time advances when all requests
// that were in flight at an earlier call have been answered.
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
