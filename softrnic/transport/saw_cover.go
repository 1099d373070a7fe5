//go:build qpcover

package transport

import (
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Observer, if set, is told what happened to queue pairs of a type in a state: what is the name of an opcode, "post" or
// "done" with the name of an operation; fate is what became of it. It may be called by several goroutines at once.
var Observer func(of, state, what, fate string)

func (q *QP) tell(what, fate string) {
	if Observer != nil {
		Observer(q.cfg.Type.String(), q.state.String(), what, fate)
	}
}

// opcodeName is the opcode; all reserved ones are the same.
func opcodeName(op wire.Opcode) string {
	if !op.Known() {
		return "reserved"
	}
	return op.String()
}

func (q *QP) saw(op wire.Opcode, fate string) { q.tell(opcodeName(op), fate) }

// verdictNames are the fates of the chain of checks.
var verdictNames = [...]string{
	pass: "taken", refuseSequence: "out of place", refuseOpcode: "reserved", refuseOperation: "not enabled", refuseDepth: "too many",
	refuseNotReady: "not ready", refuseLength: "length", refuseTooLong: "too long", refuseAccess: "access",
	refuseAlignment: "misaligned", refuseInvalidate: "invalidate", refuseLocal: "local",
}

func (q *QP) sawVerdict(op wire.Opcode, v verdict) { q.saw(op, verdictNames[v]) }

func (q *QP) sawAnswer(s wire.Syndrome) {
	fate := s.String()
	switch {
	case s.IsAck():
		fate = "taken"
	case s.IsRNR():
		fate = "RNR_NAK"
	case !s.IsNak() || s > wire.NakRemoteOp:
		fate = "NAK reserved"
	}
	q.saw(wire.RCAck, fate)
}

func (q *QP) sawPost(op verbs.WROpcode, err error) {
	fate := "queued"
	switch {
	case errors.Is(err, verbs.ErrState):
		fate = "state"
	case errors.Is(err, verbs.ErrNoSpace):
		fate = "no room"
	case err != nil:
		fate = "malformed"
	}
	if int(op) >= len(sendOps) {
		return
	}
	q.tell("post "+op.String(), fate)
}

func (q *QP) sawEnd(op verbs.WROpcode, s verbs.Status) { q.tell("done "+op.String(), s.String()) }

func (q *QP) sawRetry(why string) {
	if q.sq.len() > 0 {
		q.tell("done "+q.sq.at(q.sq.head).op.String(), why)
	}
}
