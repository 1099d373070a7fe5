package conntrack

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/transitions"
)

// Sequence holds the PSNs that the requests of a flow and their responses have reached. All of them
// are PSNs of the requester.
type Sequence struct {
	// Expected is the PSN of the next new request: the PSN that the responder expects if no packet
	// is lost between the switch and the responder. It is valid if Synced returns true.
	Expected wire.PSN
	// Acked is the highest PSN that a response covers; it is valid if HasAcked is true. For a
	// pinned flow (Flow.Pinned) the table changes neither field, because the responses have other
	// PSNs.
	Acked    wire.PSN
	HasAcked bool
	// Middle is true if requests may have been sent before the table saw the flow, because the
	// table was started later or was full.
	Middle bool

	sync sync
	seen requests
	// from is the PSN of the first request that was seen, or whose answer was seen. high is one
	// past the highest PSN of the requests that were seen; it is valid if there was one.
	from, high wire.PSN
	// loose is the newest request if that is a READ whose number of PSNs (its span) is not known;
	// otherwise loose.length is 0. While there is a loose READ, high is an upper bound of the PSN
	// after it; otherwise high is exact. An earlier READ of unknown span needs no such entry,
	// because the next request shows where it ends.
	loose readOf
	// open is the last READ of unknown span that was New. While sync is readOpen, Expected is the
	// PSN of this READ.
	open    readOf
	PathMTU pathMTU
}

// readOf is a READ request: its PSN and its length in bytes.
type readOf struct {
	psn    wire.PSN
	length uint32
}

// requests says how many requests the table has seen on a flow: none, one or more.
type requests uint8

const (
	noRequest requests = iota
	oneRequest
	moreRequests
)

// sync says what the table knows about Sequence.Expected.
type sync uint8

const (
	// unsynced: Expected is a guess from the requests. No response has confirmed it.
	unsynced sync = iota
	// synced: Expected is known.
	synced
	// readOpen: the switch has sent on a READ of unknown span. Expected is the PSN of this READ
	// until its responses or the path MTU show the span.
	readOpen

	syncs
)

type syncEvent uint8

const (
	evStart    syncEvent = iota // the connection manager named the first PSN
	evAnswered                  // a response covers requests and completes the READ that it answers, if any
	evOpenRead                  // a new READ of unknown span was forwarded
	evSpan                      // the span of that READ has become known

	syncEvents
)

// syncEdges are the transitions of sync. An event without an edge leaves the state as it is.
// testdata/sync.dot is their diagram.
var syncEdges = []transitions.Edge[sync, syncEvent]{
	{unsynced, evStart, synced},
	{unsynced, evAnswered, synced},
	{synced, evOpenRead, readOpen},
	{readOpen, evAnswered, synced},
	{readOpen, evSpan, synced},
}

var nextSync = func() (t [syncs][syncEvents]sync) {
	transitions.Fill(syncs, syncEvents, syncEdges, func(from sync, on syncEvent) *sync { return &t[from][on] })
	return t
}()

func (s *sync) on(e syncEvent) { *s = nextSync[*s][e] }

// Synced reports whether Expected is known: the connection manager named it, or the responder has
// answered. After a READ of unknown span it is not known until the first response to the READ. A
// program that needs Expected must therefore hold or drop the requests that follow such a READ if
// the flow is pinned.
func (q *Sequence) Synced() bool { return q.sync == synced }

// First reports whether the current request is the only one that the table has seen on the flow,
// and none can have been sent before it.
func (q *Sequence) First() bool { return !q.HasAcked && !q.Middle && q.seen != moreRequests }

// Advance moves Expected over a New request that the switch has sent on or answered. span is the
// Span that Packet returned for it. A span of 0, for a READ of unknown span, leaves Expected as it
// is until the span is known.
func (q *Sequence) Advance(span int) {
	if span == 0 {
		q.sync.on(evOpenRead)
		return
	}
	q.Expected = q.Expected.Add(span)
}

// quiet reports whether all requests that the table has seen have been answered.
func (q *Sequence) quiet() bool {
	switch {
	case !q.Synced():
		return false
	case q.seen == noRequest:
		return true // the connection manager named the first PSN
	}
	return q.HasAcked && q.Acked.Next() == q.Expected && q.high == q.Expected
}

// classify returns the class of a request with PSN psn for its responder. On an unsynced flow the
// table assumes that the responder expects the first request that the table has seen, and those
// that follow it in order.
func (q *Sequence) classify(psn wire.PSN, span int) Class {
	switch d := wire.Diff(psn, q.Expected); {
	case !q.Synced():
		if q.sync == unsynced && (q.seen == noRequest || d == 0) {
			q.Expected = psn.Add(span)
		}
		return Unsynced
	case d == 0:
		return New
	case d > 0:
		return Ahead
	}
	return Duplicate
}

// reach sets high to the PSN after a request for n bytes, unless the request is an older one. After
// a READ of unknown span, high is an upper bound until the span is known.
func (q *Sequence) reach(psn wire.PSN, span int, n uint32) {
	if q.seen == noRequest {
		q.seen, q.from, q.high = oneRequest, psn, psn
	} else {
		q.seen = moreRequests
	}
	end := psn.Add(maxSpan(span, n))
	isOld := wire.Diff(psn, q.high) < 0 && (span == 0 || wire.Diff(end, q.high) <= 0)
	if q.loose.length != 0 {
		isOld = wire.Diff(psn, q.loose.psn) < 0
	}
	if isOld {
		return
	}
	if q.high, q.loose.length = end, 0; span == 0 {
		q.loose = readOf{psn, n}
	}
}

// reached reports whether the table has seen a request with this PSN or a later one.
func (q *Sequence) reached(psn wire.PSN) bool {
	return q.seen != noRequest && wire.Diff(psn, q.high) < 0
}

// acked records that responses cover all PSNs up to psn.
func (q *Sequence) acked(psn wire.PSN) {
	if !q.HasAcked || wire.Diff(psn, q.Acked) > 0 {
		q.Acked, q.HasAcked = psn, true
	}
}

// syncTo records that response f shows that the responder has accepted all requests up to psn. A
// READ response without payload answers an ATOMIC_WRITE, a FLUSH, or a READ of no bytes; the span
// of such a READ is known, so it is never q.loose.
func (q *Sequence) syncTo(psn wire.PSN, f *wire.Frame) {
	if q.loose.length != 0 && wire.Diff(psn, q.loose.psn) >= 0 && f.BTH.Opcode.Is(wire.OpRead) && len(f.Payload) > 0 {
		q.high, q.loose.length = psn.Next(), 0 // f is the last response to this READ
	}
	q.sync.on(evAnswered)
	if wire.Diff(psn, q.Expected) >= 0 {
		q.Expected = psn.Next()
	}
}

// setMTU records the path MTU. The number of responses to a READ follows from it.
func (q *Sequence) setMTU(n int) {
	q.PathMTU.MTU, q.PathMTU.atLeast = n, n
	q.countRead()
}

// countRead is called when the table has learnt the path MTU or a lower bound of it. If the span of
// the READ in q.loose is known now, countRead sets high to the PSN after this READ. If the span of
// the READ in q.open is known now, countRead sets Expected to the PSN after this READ.
func (q *Sequence) countRead() {
	if span := q.PathMTU.SpanOf(q.loose.length); q.loose.length != 0 && span != 0 {
		q.high, q.loose.length = q.loose.psn.Add(span), 0
	}
	if span := q.PathMTU.SpanOf(q.open.length); q.sync == readOpen && span != 0 {
		q.sync.on(evSpan)
		q.Expected = q.open.psn.Add(span)
	}
}
