package hard

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rewrite"
)

// noteOwn explains a request on the own connection in a capture.
func (l *lane) noteOwn(c *pipeline.Ctx, p *pipeline.Parsed) string {
	if !c.Observed() {
		return ""
	}
	n := rewrite.Note{From: p.BTH.Opcode, To: p.BTH.Opcode, PSN: l.m.rawPSN, NewPSN: p.BTH.PSN}
	if p.BTH.AckReq && !l.m.rawAckReq {
		n.Why = "acknowledgement asked for"
	}
	return n.String()
}

// noteResponse explains a response of the own connection.
func (l *lane) noteResponse(c *pipeline.Ctx, p *pipeline.Parsed, raw wire.PSN) string {
	if !c.Observed() {
		return ""
	}
	n := rewrite.Note{From: p.BTH.Opcode, To: p.BTH.Opcode, PSN: raw, NewPSN: p.BTH.PSN}
	if p.BTH.Opcode.Has(wire.HasAETH) {
		n.MSN, n.Show = p.AETH.MSN, rewrite.ShowMSN
	}
	return n.String()
}

// noteAnswer explains an answer to the client, and says the same about the packet that brought it, if one did.
func (l *lane) noteAnswer(c *pipeline.Ctx, r *record, op wire.Opcode) string {
	if !c.Observed() {
		return ""
	}
	n := l.m.from
	n.To, n.NewPSN, n.MSN, n.Show = op, r.psn, l.msn, rewrite.ShowMSN
	if n.Made {
		n.From = op
	}
	if r.op.Is(wire.OpAtomic) {
		n.Show, n.Prior = n.Show|rewrite.ShowPrior, r.prior
	}
	text := n.String()
	if n.Made {
		return text
	}
	if l.m.note != "" {
		l.m.note += "; "
	}
	l.m.note += text
	return text
}
