package serialize

import (
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
)

// When a server or its link is silent for longer than a client's NIC retries, the client's queue
// pair fails, and its application connects again and repeats the failed operation. The switch
// retries for longer, so it could have the old request executed after the new ones: a WRITE of the
// former owner of a lock would change memory that the next owner has locked. So if a shared
// connection has been waiting for an answer for formerAge when a client's connection begins, the
// client's connection must wait until the requests on the shared one have ended. Until then its
// requests are dropped, and the client's NIC retransmits them. Requests on connections that existed
// before are not ordered behind those that their host has lost on another connection.

// formerAge is how long the oldest request on a shared connection must have waited. NICs retry for
// longer than that before a queue pair fails.
const formerAge = 2 * time.Millisecond

// former is a set of requests for which a new flow waits: those before a position of a shared
// connection.
type former struct {
	conn *requester.Conn
	end  uint32
}

// formers holds the earlier requests for which a sequencer has waited since it began; list is nil
// when all of them have ended.
type formers struct {
	list  []former
	began clock.Time
}

// formersOf returns the requests that must end before a sequencer that begins now sends its first
// one, because the server may execute them late. Of each shared connection whose oldest request has
// waited for its answer for formerAge it is the newest one: when that has ended, so have all others.
func (s *server) formersOf(now clock.Time) (out []former) {
	for _, k := range s.links {
		if k.isLate(now) {
			out = append(out, former{k.conn, k.conn.Newest()})
		}
	}
	return out
}

// hasFormers reports whether formersOf returns any request.
func (s *server) hasFormers(now clock.Time) bool {
	return slices.ContainsFunc(s.links, func(k *link) bool { return k.isLate(now) })
}

// isLate reports whether a request on the shared connection has had no answer for formerAge.
func (k *link) isLate(now clock.Time) bool {
	since, ok := k.conn.Oldest()
	return ok && now.Sub(since) >= formerAge
}

// awaitsFormer reports whether requests that were in flight on shared connections when the flow
// began, or held on their way to them, have not ended.
func (l *sequencer) awaitsFormer() bool {
	for _, f := range l.formers.list {
		if !f.conn.HasEnded(f.end) {
			return true
		}
	}
	for _, b := range l.m.blocked.list {
		if b.s == l.s && b.place != placeOwn && b.held.n > 0 && l.m.held.slots[b.held.first].at <= l.began {
			return true
		}
	}
	l.formers.list = nil
	return false
}

// tooEarly drops a request that arrived before the requests that it must not overtake have ended.
func (l *sequencer) tooEarly() pipeline.Verdict {
	l.m.stats.TooEarly++
	// the retransmission of this request is new to the server, even if later requests were
	// forwarded meanwhile
	l.phase.on(evDropped)
	return pipeline.Drop(ReasonBusy)
}
