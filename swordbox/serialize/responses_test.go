package serialize

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// While the expected PSN of the server is not known, responses show how far the server is: an ACK names a request
// that it has executed, a NAK the first one that it has not, and the response to a READ may end behind all
// requests that the switch knows, because the span of the READ was not known.
func TestResponsesBeforeTheStart(t *testing.T) {
	const own, acked = wire.PSN(100), wire.PSN(90)
	ack, nak := wire.AckNoCredits, wire.NakPSNSequence
	for name, c := range map[string]struct {
		phase     phase
		op        wire.Opcode
		syndrome  wire.Syndrome
		psn       wire.PSN
		own, want wire.PSN
		msn       bool
	}{
		"ACK":                        {passing, wire.RCAck, ack, 94, own, 95, true},
		"ACK of all":                 {passing, wire.RCAck, ack, 99, own, 100, true},
		"ACK of the future":          {passing, wire.RCAck, ack, 100, own, acked, true},
		"an old ACK":                 {passing, wire.RCAck, ack, 80, own, acked, true},
		"NAK":                        {passing, wire.RCAck, nak, 95, own, 95, true},
		"response to a READ":         {passing, wire.RCReadResponseOnly, ack, 94, own, 95, true},
		"middle of such a response":  {passing, wire.RCReadResponseMiddle, 0, 94, own, 95, false},
		"READ of unknown span":       {passing, wire.RCReadResponseLast, ack, 104, 105, 105, true},
		"some not seen":              {partialPassing, wire.RCReadResponseLast, ack, 104, 105, 105, true},
		"none forwarded":             {partial, wire.RCReadResponseLast, ack, 104, own, acked, true},
		"none forwarded, an old ACK": {untouched, wire.RCAck, ack, 94, own, acked, true},
	} {
		r := newRig(t, rigConfig{clients: 1, rules: moveRule(1)})
		l := r.sequencerOf(r.connect(0))
		l.phase, l.conn.psns.own, l.conn.acked, l.replies.msn, l.replies.hasMSN = c.phase, own, acked, 0, false
		p := new(pipeline.Parsed)
		p.BTH.Opcode, p.BTH.PSN, p.AETH = c.op, c.psn, wire.AETH{Syndrome: c.syndrome, MSN: 7}
		r.do(func(ctx *pipeline.Ctx) {
			if v := l.response(ctx, p); v.Action != pipeline.ActForward {
				t.Errorf("%s: %v", name, v.Action)
			}
		})
		if l.conn.psns.own != c.own || l.conn.acked != c.want || l.replies.hasMSN != c.msn || (l.replies.msn == 7) != c.msn {
			t.Errorf("%s: next PSN %v, executed before %v, MSN %d, %v", name, l.conn.psns.own, l.conn.acked, l.replies.msn, l.replies.hasMSN)
		}
	}
}

// A connection exists for certain when the server has answered on it, or the client has.
func TestUnprovenConnection(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a *replies)
		want   bool
	}{
		"nothing seen":            {func(*replies) {}, true},
		"an answer of the server": {func(a *replies) { a.hasMSN = true }, false},
		"an answer of the client": {func(a *replies) { a.flow.HasAcked = true }, false},
		"answers of both":         {func(a *replies) { a.hasMSN, a.flow.HasAcked = true, true }, false},
	} {
		a := replies{flow: &conntrack.Flow{}}
		if c.change(&a); a.isUnproven() != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}
