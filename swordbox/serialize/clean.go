package serialize

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Requests that were sent before a word enters the table may still touch the word, but the word
// does not count them. Such a request is in flight on a client's connection, or on a shared
// connection: a WRITE that also covers another word, or a request that moved under another rule.
// While the word is in atomiccache.Pass these requests do no harm, because the memory alone decides
// about its value. The word leaves Pass when all of these requests have ended: when cleanSince
// returns a time after the word entered the table.
//
// The machine does not see the end of some requests, and waits for a fixed time (Config.Transit)
// instead: requests that passed while no rule selected their server, requests that were lost with a
// shared connection, and requests of a flow that has ended. The retransmissions of these requests
// pass the machine again. So only a packet that had already left the switch can still arrive
// unseen.

// words holds what the switch knows about old requests to a server: all requests that were sent to
// the server before the time clean have ended.
type words struct {
	// unsettled is true if requests that the machine does not know may be in flight: since the last
	// call of cleanSince the rules have changed, or a shared connection or a flow with requests in
	// flight has ended. settledAt is when all such requests have arrived or are lost.
	unsettled bool
	settledAt clock.Time
	// clean is the last result of cleanSince, computed at cleanAt.
	clean, cleanAt clock.Time
}

// cleanInterval is how long the cached result of cleanSince is used.
const cleanInterval = clock.Time(20 * time.Microsecond)

// cleanSince returns a time such that all requests sent to the server before it, on clients'
// connections and on shared ones, have ended: they were answered, or cannot reach the server any
// more.
func (s *server) cleanSince(c *pipeline.Ctx) clock.Time {
	now := c.Now
	if s.unsettled {
		s.unsettled, s.settledAt = false, max(now, c.DelayedUntil()).Add(s.m.cfg.Transit)
	}
	if now < s.settledAt {
		return 0
	}
	if s.clean != 0 && now-s.cleanAt < cleanInterval {
		return s.clean
	}
	floor := now - clock.Time(s.m.cfg.Words.Budget)
	at := now
	for _, l := range s.m.flows.list {
		if l != nil && l.s == s && l.phase != closed {
			at = clock.Min(at, max(floor, l.cleanSince(now)))
		}
	}
	for _, k := range s.links {
		at = clock.Min(at, k.cleanSince(now))
	}
	s.clean, s.cleanAt = at, now
	return at
}

// cleanSince returns a time such that all requests that were sent on the shared connection before
// it have ended. A request that was lost with an earlier, failed connection has ended, too,
// although it may still arrive; server.unsettled makes the machine wait until that is no longer
// possible.
func (k *link) cleanSince(now clock.Time) clock.Time {
	newest := k.conn.Requests.Newest()
	oldest := newest - uint32(k.conn.Requests.Outstanding()+k.conn.Requests.Queued())
	return k.grace.Clean(now, wire.PSN(newest&mask24), wire.PSN(oldest&mask24))
}

// cleanSince returns the time before which all requests sent on the client's connection have ended.
func (l *sequencer) cleanSince(now clock.Time) clock.Time {
	switch {
	case !l.phase.isLoose():
		return l.conn.grace.Clean(now, l.conn.psns.own, l.conn.acked)
	case !l.phase.hasForwarded() || l.conn.acked == l.conn.psns.own:
		return now
	case now > l.conn.lastLoose.Add(l.m.cfg.Words.Budget):
		return now
	}
	return 0
}

// isForwarding reports whether requests are in flight on the client's connection.
func (l *sequencer) isForwarding() bool {
	return l.conn.acked != l.conn.psns.own && (!l.phase.isLoose() || l.phase.hasForwarded())
}
