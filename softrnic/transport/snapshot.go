package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Snapshot is the state of a queue pair for listings: a copy, which shares nothing with it.
type Snapshot struct {
	verbs.QPAttr
	// Una is the oldest PSN that is not acknowledged, Sent one past the highest PSN that was sent; both
	// of RC alone.
	Una, Sent wire.PSN
	// InFlight is the number of packets in flight, Window how many may be now, MaxWindow how many may
	// be at most; of RC alone.
	InFlight, Window, MaxWindow int
	// Recovery is the kind of selective retransmission that the connection uses; "" for go-back-N and
	// before RTS. Ahead is how many PSNs may be ahead of the oldest one that is not acknowledged.
	Recovery string
	Ahead    int
	// Oldest is the oldest send work request that is not complete; its number is 0 if there is none.
	Oldest reason.WorkRequest
	// Retries and RNRRetries are the retries that are left.
	Retries, RNRRetries uint8
	// Waits is true while the queue pair waits after an RNR NAK.
	Waits  bool
	Totals reason.Totals
	// Notes are the newest notes, oldest first. End is why the queue pair has failed; nil if it has not.
	Notes []reason.Note
	End   *reason.Note
}

// Snapshot returns the present state.
func (q *QP) Snapshot() Snapshot {
	r := &q.req
	s := Snapshot{
		QPAttr: q.Query(), Una: r.una, Sent: r.maxPSN, InFlight: r.window.flight, Window: r.window.size, MaxWindow: r.window.limit,
		Retries: r.retry.left, RNRRetries: r.retry.rnrLeft, Waits: r.retry.rnrAt != clock.Never,
		Totals: q.core.notes.Totals, Notes: q.core.notes.All(),
	}
	if r.sel != nil {
		s.Recovery, s.Ahead, s.InFlight = r.sel.rec.Kind().String(), r.sel.rec.Limit(), r.sel.rec.Load()
	}
	if r.sender.sq.len() > 0 {
		s.Oldest = r.sender.request(r.sender.sq.head)
	}
	if end, ok := q.core.notes.End(); ok {
		s.End = &end
	}
	return s
}
