//go:build qpcover

package transport

import (
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Observer, if set, is called for each event of a queue pair. `of` is the type of the queue pair,
// `state` its state. `what` is the name of an opcode, or "post" or "done" with the name of an
// operation; `fate` is the outcome. Several goroutines may call Observer at once.
var Observer func(of, state, what, fate string)

func (c *core) tell(what, fate string) {
	if Observer != nil {
		Observer(c.cfg.Type.String(), c.state.String(), what, fate)
	}
}

// opcodeName returns the name of the opcode; all reserved opcodes have the same name.
func opcodeName(op wire.Opcode) string {
	if !op.Known() {
		return "reserved"
	}
	return op.String()
}

func (c *core) saw(op wire.Opcode, fate string) { c.tell(opcodeName(op), fate) }

var verdictNames = [...]string{
	pass: "taken", refuseSequence: "out of place", refuseOpcode: "reserved", refuseSRQ: "no SRQ", refuseDomain: "XRC domain", refuseBrokenSRQ: "broken SRQ", refuseOperation: "not enabled", refuseDepth: "too many",
	refuseNotReady: "not ready", refuseLength: "length", refuseTooLong: "too long", refuseAccess: "access",
	refuseAlignment: "misaligned", refuseInvalidate: "invalidate", refuseLocal: "local",
}

func (c *core) sawVerdict(op wire.Opcode, v verdict) { c.saw(op, verdictNames[v]) }

func (c *core) sawAnswer(s wire.Syndrome) {
	fate := s.String()
	switch {
	case s.IsAck():
		fate = "taken"
	case s.IsRNR():
		fate = "RNR_NAK"
	case !s.IsNak() || s > wire.NakRemoteOp:
		fate = "NAK reserved"
	}
	c.saw(wire.RCAck|c.svc.opcodes, fate)
}

func (c *core) sawPost(op verbs.WROpcode, err error) {
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
	c.tell("post "+op.String(), fate)
}

func (c *core) sawEnd(op verbs.WROpcode, s verbs.Status) { c.tell("done "+op.String(), s.String()) }

func (c *core) sawRetry(why string) {
	if c.qp.req.sender.sq.len() > 0 {
		c.tell("done "+c.qp.req.sender.sq.at(c.qp.req.sender.sq.head).op.String(), why)
	}
}
