package serialize

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// noteOwn describes a request on the client's connection for captures. raw and rawAckReq are the
// PSN and AckReq that the client sent.
func noteOwn(c *pipeline.Ctx, p *pipeline.Parsed, raw wire.PSN, rawAckReq bool) string {
	if !c.Observed() {
		return ""
	}
	movedOwn(c, &p.Frame, raw)
	n := transform.Note{From: p.BTH.Opcode, To: p.BTH.Opcode, PSN: raw, NewPSN: p.BTH.PSN}
	if p.BTH.AckReq && !rawAckReq {
		n.Why = "acknowledgement requested"
	}
	return n.String()
}

// movedOwn reports to a pipeline.Follower that a request has another PSN on the client's connection
// than raw, the PSN that the client gave it.
func movedOwn(c *pipeline.Ctx, f *wire.Frame, raw wire.PSN) {
	to := pipeline.RequestID{Server: f.DstAddr(), QPN: f.BTH.DestQP, PSN: f.BTH.PSN}
	from := to
	from.PSN = raw
	c.Moved(from, to)
}

// noteResponse describes a response on the client's connection for captures; raw is the server's
// PSN.
func noteResponse(c *pipeline.Ctx, p *pipeline.Parsed, raw wire.PSN) string {
	if !c.Observed() {
		return ""
	}
	n := transform.Note{From: p.BTH.Opcode, To: p.BTH.Opcode, PSN: raw, NewPSN: p.BTH.PSN}
	if p.BTH.Opcode.Has(wire.HasAETH) {
		n.MSN, n.Show = p.AETH.MSN, transform.ShowMSN
	}
	return n.String()
}

// noteAnswer describes an answer to the client for captures. If a packet of the server caused the
// answer, noteAnswer also adds the text to the note of that packet.
func (a *replies) noteAnswer(c *pipeline.Ctx, r *record, op wire.Opcode) string {
	if !c.Observed() {
		return ""
	}
	n := a.m.step.from
	n.To, n.NewPSN, n.MSN, n.Show = op, r.psn, a.msn, transform.ShowMSN
	if n.Made {
		n.From = op
	}
	if r.op.Is(wire.OpAtomic) && r.op != wire.RCAtomicWrite {
		n.Show, n.Prior = n.Show|transform.ShowPrior, r.prior
	}
	text := n.String()
	if n.Made {
		return text
	}
	if a.m.step.note != "" {
		a.m.step.note += "; "
	}
	a.m.step.note += text
	return text
}
