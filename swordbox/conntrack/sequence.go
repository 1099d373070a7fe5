package conntrack

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/transitions"
)

// Sequence holds the PSNs that the requests of a flow and their responses have reached. All PSNs
// are the requester's.
type Sequence struct {
	// Expected is the PSN of the next new request: what the responder expects if no packet is lost
	// between it and the switch. It is valid if Synced.
	Expected wire.PSN
	// Acked is the highest PSN that responses cover; valid if HasAcked. Neither is updated for
	// pinned flows, whose responder uses other PSNs.
	Acked    wire.PSN
	HasAcked bool
	// Middle: requests may have been sent before the table saw the flow: before its start, or while
	// it was full.
	Middle bool

	sync sync
	seen requests
	// from is the PSN of the first request seen. high is the PSN after the highest; valid if a
	// request was seen.
	from, high wire.PSN
	// loose is a READ whose number of PSNs (its span) is not known, and high is an upper bound of
	// the PSN after it. It is the newest request: one before another that was seen ends before that.
	// length 0: there is no such READ, and high is exact.
	loose readOf
	// open is the last READ of unknown span that was New. While sync is readOpen, Expected is its
	// PSN.
	open readOf
	pathMTU
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

// sync says what the table knows of Sequence.Expected.
type sync uint8

const (
	// unsynced: Expected is a guess from the requests; no response has confirmed it.
	unsynced sync = iota
	// synced: Expected is known.
	synced
	// readOpen: the switch has sent on a READ of unknown span. Expected is the PSN of this READ
	// until its responses or the MTU show the span.
	readOpen

	syncs
)

var syncNames = [...]string{"unsynced", "synced", "readOpen"}

// String is the name of the state.
func (s sync) String() string { return syncNames[s] }

// syncEvent is what changes sync.
type syncEvent uint8

const (
	evStart    syncEvent = iota // the connection manager named the first PSN
	evAnswered                  // a response covers requests and completes the READ that it answers, if any
	evOpenRead                  // a new READ of unknown span was sent on
	evSpan                      // the span of that READ has become known

	syncEvents
)

var syncEventNames = [...]string{"start", "answered", "open READ", "span known"}

// String is the name of the event.
func (e syncEvent) String() string { return syncEventNames[e] }

// syncEdges are the transitions of sync. An event without an edge leaves it as it is.
// testdata/sync.dot is their diagram.
var syncEdges = []transitions.Edge[sync, syncEvent]{
	{unsynced, evStart, synced},
	{unsynced, evAnswered, synced},
	{synced, evOpenRead, readOpen},
	{readOpen, evAnswered, synced},
	{readOpen, evSpan, synced},
}

// nextSync holds syncEdges by state and event.
var nextSync = func() (t [syncs][syncEvents]sync) {
	transitions.Fill(syncs, syncEvents, syncEdges, func(from sync, on syncEvent) *sync { return &t[from][on] })
	return t
}()

// on follows the edge for an event.
func (s *sync) on(e syncEvent) { *s = nextSync[*s][e] }

// Synced reports whether Expected is known: from the connection manager, or because the responder
// has answered. A READ of unknown span makes it unknown until the READ's first response: a program
// that cannot do without Expected (that of a pinned flow) must hold or drop the requests after such
// a READ.
func (q *Sequence) Synced() bool { return q.sync == synced }

// First reports that the current request is the only one that the table has seen on the flow, and
// that none can have been sent before.
func (q *Sequence) First() bool { return !q.HasAcked && !q.Middle && q.seen != moreRequests }

// Advance moves Expected over a New request that was sent on or answered, by the Span that Packet
// returned for it. A span of 0, a READ of unknown span, leaves Expected where it is until the span
// is known.
func (q *Sequence) Advance(span int) {
	if span == 0 {
		q.sync.on(evOpenRead)
		return
	}
	q.Expected = q.Expected.Add(span)
}

// quiet reports that all requests that the table has seen have been answered.
func (q *Sequence) quiet() bool {
	switch {
	case !q.Synced():
		return false
	case q.seen == noRequest:
		return true // the connection manager named the first PSN
	}
	return q.HasAcked && q.Acked.Next() == q.Expected && q.high == q.Expected
}

// classify returns the class of a request with this PSN at its responder. On an unsynced flow the
// table assumes that the responder expects the first request that the table has seen, and those in
// order after it.
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

// reach moves high behind a request for n bytes. Behind a READ of unknown span, high is an upper
// bound until the span is known.
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

// reached reports whether the table has seen a request with this PSN.
func (q *Sequence) reached(psn wire.PSN) bool {
	return q.seen != noRequest && wire.Diff(psn, q.high) < 0
}

// acked records that responses cover all PSNs up to this one.
func (q *Sequence) acked(psn wire.PSN) {
	if !q.HasAcked || wire.Diff(psn, q.Acked) > 0 {
		q.Acked, q.HasAcked = psn, true
	}
}

// syncTo records that the responder has accepted all requests up to psn, as response f shows. A
// READ response without payload answers an ATOMIC_WRITE, a FLUSH, or a READ of no bytes, which
// is never loose.
func (q *Sequence) syncTo(psn wire.PSN, f *wire.Frame) {
	if q.loose.length != 0 && wire.Diff(psn, q.loose.psn) >= 0 && f.BTH.Opcode.Is(wire.OpRead) && len(f.Payload) > 0 {
		q.high, q.loose.length = psn.Next(), 0 // this is the last response to that READ
	}
	q.sync.on(evAnswered)
	if wire.Diff(psn, q.Expected) >= 0 {
		q.Expected = psn.Next()
	}
}

// setMTU records the path MTU, from which the number of responses to a READ follows.
func (q *Sequence) setMTU(n int) {
	q.MTU, q.atLeast = n, n
	q.countRead()
}

// countRead is called when the path MTU becomes known. It then computes how many PSNs the READs
// loose and open take, and sets high to the PSN after loose, Expected to the PSN after open.
func (q *Sequence) countRead() {
	if span := q.SpanOf(q.loose.length); q.loose.length != 0 && span != 0 {
		q.high, q.loose.length = q.loose.psn.Add(span), 0
	}
	if span := q.SpanOf(q.open.length); q.sync == readOpen && span != 0 {
		q.sync.on(evSpan)
		q.Expected = q.open.psn.Add(span)
	}
}
