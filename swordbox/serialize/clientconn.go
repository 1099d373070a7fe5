package serialize

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
)

// clientConn is what the switch knows of the client's connection: which PSNs the server sees, and
// which of them the server has acknowledged. It also has the operations in flight whose end
// changes what the switch knows of words or of R_Keys (clientOp).
type clientConn struct {
	s *server
	// psns translates between the client's PSNs and the server's. While the expected PSN is not
	// known, psns.own is one past the highest PSN that was forwarded, if any was.
	psns psnMap
	// acked is the first PSN on the client's connection to the server that no response covers.
	acked wire.PSN
	msg   message
	rest  rest
	// far is the largest number of PSNs that have been in flight on the connection at one time: see
	// reach.go.
	far int32
	ops clientOps
	// grace computes the clean time of this connection: the server has acknowledged all requests
	// that were sent on it before the clean time. lastLoose is when a request was last forwarded
	// while the expected PSN was not known.
	grace     atomiccache.Grace
	lastLoose clock.Time
	proof     proof
}

// isAnswered reports whether all requests on the client's connection have been answered.
func (k *clientConn) isAnswered() bool { return k.acked == k.psns.own && k.msg == between }

// unanswered returns the number of PSNs on the client's connection without an answer. They are the
// last ones before psns.own. None of their requests has moved, because a flow changes its place
// only while it is idle. There may be more of them than psnMap remembers.
func (k *clientConn) unanswered() int { return int(wire.Diff(k.psns.own, k.acked)) }

// find returns where the switch has sent the request that has PSN `client` on the client's side. If
// it was sent on the client's connection, find also returns the request's PSN there.
func (k *clientConn) find(client wire.PSN) (where, wire.PSN) {
	if d := int(wire.Diff(k.psns.client, client)); d > 0 && d <= k.unanswered() {
		return whereOwn, k.psns.own.Add(-d)
	}
	return k.psns.find(client)
}

// clientPSN returns the client's PSN for a PSN on the client's connection. shift is the difference
// between the two PSNs, and ok is false if the PSN is not known; see psnMap.back.
func (k *clientConn) clientPSN(own wire.PSN) (client wire.PSN, shift uint32, ok bool) {
	if d := int(wire.Diff(k.psns.own, own)); d > 0 && d <= k.unanswered() {
		return k.psns.client.Add(-d), k.psns.shift(), true
	}
	return k.psns.back(own)
}

// ack records that the server has executed all requests before `end`. For each of their
// operations it updates what the switch knows of words and of R_Keys. The result is false if the
// switch already knew that they were executed.
func (k *clientConn) ack(now clock.Time, end wire.PSN) bool {
	if wire.Diff(end, k.acked) <= 0 {
		return false
	}
	k.acked = end
	k.proves(end)
	o := &k.ops
	for o.head != o.tail {
		op := o.at(o.head)
		if wire.Diff(end, op.end) < 0 {
			break
		}
		switch {
		case op.all:
			k.s.m.words.EndAll(now, op.decision, k.s.index, op.va, op.n)
		case op.word != nil:
			op.word.Answered(now, op.decision, 0)
		}
		if op.prove {
			k.s.keys.prove(op.rkey, op.right, op.va, op.n)
		}
		o.head++
	}
	return true
}

// drop ends all operations in flight because the flow was refused (see die). If the server refused
// the flow, it refused the first operation, and executes none of the others.
func (k *clientConn) drop(now clock.Time) {
	o := &k.ops
	for first := true; o.head != o.tail; o.head++ {
		op := o.at(o.head)
		switch {
		case op.all:
			k.s.m.words.EndAll(now, op.decision, k.s.index, op.va, op.n)
		case op.word != nil:
			op.word.Undone(now, op.decision)
		}
		if first && op.prove {
			k.s.keys.forget(op.rkey)
		}
		first = false
	}
}

// addAll adds an operation that concerns all words in an extent to the operations in flight.
func (k *clientConn) addAll(x *extent, d atomiccache.Decision) {
	op := k.ops.add()
	op.extent, op.all, op.decision = *x, true, d
}
