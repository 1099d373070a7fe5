package conntrack

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Bounds of the evidence that the table keeps about a learning flow.
const (
	// maxRuns is how many runs of requests the table remembers of a flow.
	maxRuns = 32
	// longAgo is the largest distance in PSNs between the newest request and an older one that may
	// still be answered.
	longAgo = 1 << 22
)

// kind is the type of the requests of a run.
type kind uint8

const (
	plain kind = iota // SEND or WRITE, answered by an ACK
	read              // answered by READ responses: READ, ATOMIC_WRITE, FLUSH
	atomic
)

// run is a sequence of requests of one kind with consecutive PSNs: one READ, one atomic, or any
// number of packets of SENDs and WRITEs.
type run struct {
	psn  wire.PSN
	span int32
	kind kind
}

// learning is the evidence about a flow whose peer is not known: its requests, and which other
// flows cannot be its peer. The requester of this flow answers the requests of the peer flow. So
// another flow is not the peer if its requests do not match the responses of this requester.
type learning struct {
	slot uint32
	// runs is a ring of the n newest runs; next is the index of the run that is added next. end is
	// the PSN after the last request.
	runs [maxRuns]run
	n    int
	next int
	end  wire.PSN
	// low is the lowest requested PSN, but at most longAgo before the newest one.
	low   wire.PSN
	until clock.Time // the time from which the flow is settled (entry.settled)
	// out is a set of other flows, one bit for each slot: those that cannot be the peer, because
	// their requests do not match the responses that this flow's requester has sent. any is true if
	// a flow was put into out since the last call of restart.
	out []uint64
	any bool
	// fits is the only flow that can still be the peer. votes is how many responses have matched
	// it, and vote is the last PSN that matched. claim is the flow that has found this flow as its
	// only possible peer: claim.learn.fits is this flow.
	fits  *Flow
	votes int
	vote  wire.PSN
	claim *Flow
}

// request records a request of the flow.
func (l *learning) request(f *wire.Frame, span int) {
	psn, k := f.BTH.PSN, plain
	switch {
	case f.BTH.Opcode.Is(wire.OpRead|wire.OpFlush) || f.BTH.Opcode == wire.RCAtomicWrite:
		k = read
	case f.BTH.Opcode.Is(wire.OpAtomic):
		k = atomic
	}
	if d := wire.Diff(psn, l.low); l.n == 0 || d < 0 {
		l.low = psn
	} else if d > longAgo {
		l.low = psn.Add(-longAgo)
	}
	if l.n != 0 && wire.Diff(psn, l.end) < 0 {
		d := wire.Diff(psn, l.newest().psn)
		if l.newest().kind != read || d <= 0 {
			return // a retransmission
		}
		l.newest().span = d // the next request shows that the READ takes fewer PSNs than assumed
	}
	width := maxSpan(span, f.RETH.Length)
	if last := l.newest(); l.n != 0 && k == plain && last.kind == plain && psn == l.end {
		last.span += int32(width)
	} else {
		l.runs[l.next] = run{psn, int32(width), k}
		l.next = (l.next + 1) % maxRuns
		l.n = min(l.n+1, maxRuns)
	}
	l.end = psn.Add(width)
}

func (l *learning) newest() *run { return &l.runs[(l.next+maxRuns-1)%maxRuns] }

// match says what a response shows about a flow whose request it may answer.
type match uint8

const (
	possible   match = iota // no evidence: the request is not in runs, or the response is a NAK
	matching                // the flow has a request of that PSN and kind
	impossible              // the response answers no request of the flow
)

// compare reports whether a response may answer a request of the flow.
func (l *learning) compare(f *wire.Frame) match {
	psn, op := f.BTH.PSN, f.BTH.Opcode
	if wire.Diff(psn, l.end) >= 0 {
		return impossible
	}
	if op == wire.RCAck && !f.AETH.Syndrome.IsAck() {
		return possible
	}
	for i := range l.n {
		q := &l.runs[(l.next+maxRuns-1-i)%maxRuns]
		d := wire.Diff(psn, q.psn)
		if d < 0 {
			continue
		}
		if d >= q.span {
			// The switch did not see the request: it was lost before the switch, or it is older
			// than the flow.
			return possible
		}
		if q.kind == kindOf(op) {
			return matching
		}
		return impossible
	}
	if wire.Diff(psn, l.low) < 0 {
		return impossible // else a dead flow without responses stays a candidate for all responses
	}
	return possible
}

// kindOf returns the kind of the requests that a response with this opcode answers.
func kindOf(op wire.Opcode) kind {
	switch {
	case op.Is(wire.OpRead):
		return read
	case op.Is(wire.OpAtomic):
		return atomic
	}
	return plain
}

// excludes reports whether the responses of the flow have shown that o is not its peer.
func (l *learning) excludes(o *learning) bool { return l.out[o.slot/64]>>(o.slot%64)&1 != 0 }

// exclude records that o is not the peer of the flow.
func (l *learning) exclude(o *learning) {
	l.out[o.slot/64] |= 1 << (o.slot % 64)
	l.any = true
}

// restart forgets everything that responses have shown about the peer of the flow: which flows
// cannot be it, and which flow fits.
func (l *learning) restart() {
	clear(l.out)
	l.any, l.fits, l.votes = false, nil, 0
}

// forget removes fl from the conclusions of l about the peer of l's flow. It is called because fl
// has stopped learning: fl is the peer of another flow, or has ended. was is the evidence that the
// table had about fl.
func (l *learning) forget(fl *Flow, was *learning) {
	l.out[was.slot/64] &^= 1 << (was.slot % 64)
	if l.fits == fl {
		l.fits, l.votes = nil, 0
	}
	if l.claim == fl {
		l.claim = nil
	}
}
