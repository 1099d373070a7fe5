package lease

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Terms are the server's end of leases.
type Terms struct {
	// Length is how long a client may use the nodes, locks or blocks that it holds, counted from
	// when it sent the last request that was answered.
	Length time.Duration
	// Grace is how long the server waits after the end of the lease, so that a slow client can
	// still renew it.
	Grace time.Duration
}

// Lapsed reports whether a client's lease has ended. `heard` is when the server last heard from the
// client.
func (t Terms) Lapsed(heard, now clock.Time) bool { return now > heard.Add(t.Length) }

// Over reports whether a client's lease and the grace after it have ended. Then the server fences
// the client.
func (t Terms) Over(heard, now clock.Time) bool { return now > heard.Add(t.Length+t.Grace) }

// Term is the client's end of a lease. The zero Term has ended.
type Term struct {
	// Length is the length of the lease, as the server has said.
	Length time.Duration
	// Until is when the lease ends, unless it is extended.
	Until clock.Time
}

// Begin returns a Term of this length for a lease that the client requested at the time `sent`.
func Begin(length time.Duration, sent clock.Time) Term { return Term{length, sent.Add(length)} }

// Extend extends the lease when an answer has arrived. `sent` is when the client sent the request.
// An answer to an earlier request changes nothing.
func (t *Term) Extend(sent clock.Time) { t.Until = max(t.Until, sent.Add(t.Length)) }

// End ends the lease at once.
func (t *Term) End() { t.Until = 0 }

// Valid reports whether the lease lasts at the time now, so that the client may use what it holds.
func (t *Term) Valid(now clock.Time) bool { return now < t.Until }

// Due reports whether half of the lease has passed, so that the client should renew it.
func (t *Term) Due(now clock.Time) bool { return now >= t.Until.Add(-t.Length/2) }
