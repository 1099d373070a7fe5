package serialize

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// The first packet of the response to a READ, or its refusal, shows how many PSNs the READ takes.
// Other packets do not.
func TestSpanOfARead(t *testing.T) {
	for name, c := range map[string]struct {
		op       wire.Opcode
		syndrome wire.Syndrome
		length   uint32
		payload  int
		want     int // 0: not known
	}{
		"only packet":         {wire.RCReadResponseOnly, wire.AckNoCredits, 100, 100, 1},
		"two packets":         {wire.RCReadResponseFirst, wire.AckNoCredits, 2000, 1000, 2},
		"a byte more":         {wire.RCReadResponseFirst, wire.AckNoCredits, 2001, 1000, 3},
		"a byte less":         {wire.RCReadResponseFirst, wire.AckNoCredits, 1999, 1000, 2},
		"small packets":       {wire.RCReadResponseFirst, wire.AckNoCredits, 3, 1, 3},
		"first without bytes": {wire.RCReadResponseFirst, wire.AckNoCredits, 2000, 0, 0},
		"last packet":         {wire.RCReadResponseLast, wire.AckNoCredits, 2000, 1000, 0},
		"refused":             {wire.RCAck, wire.NakRemoteAccess, 2000, 0, 1},
		"missing":             {wire.RCAck, wire.NakPSNSequence, 2000, 0, 0},
		"not ready":           {wire.RCAck, wire.RNRNak, 2000, 0, 0},
		"ACK":                 {wire.RCAck, wire.AckNoCredits, 2000, 0, 0},
	} {
		for _, blocked := range []bool{false, true} {
			_, l, _ := answersTo(t)
			l.replies.window = window{max: 8}
			rec := l.replies.window.add(l.next, wire.RCReadRequest)
			rec.length = c.length
			l.conn.msg, l.waits.blocked, l.m.kick = openRead, blocked, false
			next, own := l.next, l.conn.psns.own
			p := new(pipeline.Parsed)
			p.BTH.Opcode, p.AETH.Syndrome, p.Payload = c.op, c.syndrome, make([]byte, c.payload)
			l.resolve(p)
			if rec.span != c.want || l.next != next.Add(c.want) || l.conn.psns.own != own.Add(c.want) || l.conn.psns.client != next.Add(c.want) || (l.conn.msg == between) != (c.want > 0) {
				t.Errorf("%s: %d PSNs, next %v and %v behind %v and %v, %v", name, rec.span, l.next, l.conn.psns.own, next, own, l.conn.msg)
			}
			if l.m.kick != (blocked && c.want > 0) {
				t.Errorf("%s, held requests %v: they are looked at: %v", name, blocked, l.m.kick)
			}
			l.m.kick = true
			if l.resolve(p); !l.m.kick {
				t.Errorf("%s: held requests are not looked at", name)
			}
			l.waits.blocked = false
		}
	}
}

// ownResponses are responses on the client's connection while two requests are in flight there.
var ownResponses = map[string]struct {
	op       wire.Opcode
	syndrome wire.Syndrome
	back     int // before the next PSN at the server
	change   func(l *sequencer)
	want     pipeline.Action
	acked    int // PSNs that are acknowledged, of two in flight
	dead     bool
}{
	"ACK of the first":        {wire.RCAck, wire.AckNoCredits, 2, nil, pipeline.ActRewrite, 1, false},
	"ACK of both":             {wire.RCAck, wire.AckNoCredits, 1, nil, pipeline.ActRewrite, 2, false},
	"ACK of the future":       {wire.RCAck, wire.AckNoCredits, 0, nil, pipeline.ActDrop, 0, false},
	"old ACK":                 {wire.RCAck, wire.AckNoCredits, 3, nil, pipeline.ActForward, 0, false},
	"far behind":              {wire.RCAck, wire.AckNoCredits, slack + 100, nil, pipeline.ActDrop, 0, false},
	"sequence NAK":            {wire.RCAck, wire.NakPSNSequence, 1, nil, pipeline.ActRewrite, 1, false},
	"not ready":               {wire.RCAck, wire.RNRNak | 1, 1, nil, pipeline.ActRewrite, 1, false},
	"refused":                 {wire.RCAck, wire.NakRemoteAccess, 1, nil, pipeline.ActRewrite, 1, true},
	"refused, the oldest":     {wire.RCAck, wire.NakRemoteAccess, 2, nil, pipeline.ActRewrite, 0, true},
	"refused, answered":       {wire.RCAck, wire.NakRemoteAccess, 3, nil, pipeline.ActForward, 0, false},
	"while requests are held": {wire.RCAck, wire.AckNoCredits, 2, func(l *sequencer) { l.m.blocked.add(l) }, pipeline.ActConsume, 1, false},
	"same numbers": {wire.RCAck, wire.AckNoCredits, 2, func(l *sequencer) {
		l.conn.psns.start(l.conn.psns.own, 8)
		l.next, l.replies.hasMSN = l.conn.psns.own, false
	}, pipeline.ActForward, 1, false},
	"same PSN": {wire.RCAck, wire.AckNoCredits, 2, func(l *sequencer) { l.conn.psns.start(l.conn.psns.own, 8); l.next, l.replies.msn = l.conn.psns.own, 99 }, pipeline.ActRewrite, 1, false},
}

// A response on the client's connection gets the PSN and the MSN that the client expects; one that
// answers nothing that is in flight is dropped; a fatal NAK of a request without an answer ends the
// flow.
func TestResponsesOnTheClientsConnection(t *testing.T) {
	for name, c := range ownResponses {
		r, l, got := answersTo(t)
		if c.change != nil {
			c.change(l)
		}
		shift := int(l.conn.psns.shift())
		if shift == 0 != (l.next == l.conn.psns.own) {
			t.Fatalf("%s: shift %d", name, shift)
		}
		if c.back > 2 {
			shift = 0 // before the request that has moved
		}
		l.assign(2, false)
		l.advance(2)
		acked, own, msn, hadMSN := l.conn.acked, l.conn.psns.own, l.replies.msn, l.replies.hasMSN
		p := heldRequest(l, c.op)
		p.Eth, p.IPv4.Src, p.IPv4.Dst = wire.Ethernet{Src: macOf(serverIP), Dst: macOf(1)}, p.IPv4.Dst, p.IPv4.Src
		p.BTH.PSN, p.AETH = own.Add(-c.back), wire.AETH{Syndrome: c.syndrome, MSN: 50}
		before, told := r.m.stats, 0
		l.permit, r.m.cfg.Answered = permitGiven, func(*conntrack.Flow, wire.PSN) { told++ }
		r.do(func(ctx *pipeline.Ctx) {
			r.m.kick = false
			v := l.response(ctx, p)
			if (told == 1) != (c.want != pipeline.ActDrop) {
				t.Errorf("%s: the journal was told %d times", name, told)
			}
			if v.Action != c.want || (v.Reason == ReasonGhost) != (c.want == pipeline.ActDrop) {
				t.Errorf("%s: %+v", name, v)
			}
			if r.m.kick != (l.waits.blocked && c.acked > 0) {
				t.Errorf("%s: held requests are looked at: %v", name, r.m.kick)
			}
		})
		s := r.m.stats
		if l.conn.acked != acked.Add(c.acked) || (l.phase == refused) != c.dead || (s.Ghosts-before.Ghosts == 1) != (c.want == pipeline.ActDrop) {
			t.Errorf("%s: %d acknowledged, %v, %d ghosts", name, wire.Diff(l.conn.acked, acked), l.phase, s.Ghosts-before.Ghosts)
		}
		if c.want == pipeline.ActDrop {
			continue
		}
		if want := own.Add(shift - c.back); p.BTH.PSN != want || c.dead && (l.replies.deadPSN != want || l.replies.fatal != c.syndrome) {
			t.Errorf("%s: PSN %v, want %v; refused %v", name, p.BTH.PSN, want, l.replies.deadPSN)
		}
		if want := max(msn, uint32(50+shift)); hadMSN && (p.AETH.MSN != want || l.replies.msn != want) {
			t.Errorf("%s: MSN %d, want %d", name, p.AETH.MSN, want)
		}
		if (len(*got) == 1) != (c.want == pipeline.ActConsume) || (s.Rewritten-before.Rewritten == 1) != (c.want != pipeline.ActForward) {
			t.Errorf("%s: the client gets %v, %d rewritten", name, *got, s.Rewritten-before.Rewritten)
		}
	}
}

// A response to a READ or an atomic whose PSN the map does not know any more is translated by its
// record.
func TestResponseByItsRecord(t *testing.T) {
	for op, want := range map[wire.Opcode]pipeline.Action{wire.RCReadResponseMiddle: pipeline.ActRewrite, wire.RCAtomicAck: pipeline.ActRewrite, wire.RCAck: pipeline.ActDrop} {
		r, l, _ := answersTo(t)
		l.replies.window = window{max: 8}
		rec := l.replies.window.add(50, wire.RCReadRequest)
		rec.own, rec.span, rec.place = 40, 3, placeOwn
		p := heldRequest(l, op)
		p.BTH.PSN, p.AETH = 41, wire.AETH{Syndrome: wire.AckNoCredits, MSN: 30}
		msn := l.replies.msn
		r.do(func(ctx *pipeline.Ctx) {
			if v := l.response(ctx, p); v.Action != want {
				t.Errorf("%v: %+v", op, v)
			}
		})
		if want == pipeline.ActRewrite && (p.BTH.PSN != 51 || op.Has(wire.HasAETH) && p.AETH.MSN != 40 || !op.Has(wire.HasAETH) && l.replies.msn != msn) {
			t.Errorf("%v: PSN %v, MSN %d", op, p.BTH.PSN, p.AETH.MSN)
		}
	}
}

// The machine forwards responses of flows that it does not follow, or not any more, as they are.
func TestResponsesOfOtherFlows(t *testing.T) {
	for name, c := range map[string]struct {
		change func(l *sequencer, p *pipeline.Parsed)
		psn    wire.PSN
	}{
		"followed":     {func(*sequencer, *pipeline.Parsed) {}, 1},
		"closed":       {func(l *sequencer, _ *pipeline.Parsed) { l.phase = closed }, 0},
		"another flow": {func(l *sequencer, _ *pipeline.Parsed) { l.generation++ }, 0},
		"no sequencer": {func(l *sequencer, _ *pipeline.Parsed) { l.flow.Ext = nil }, 0},
		"a CNP":        {func(_ *sequencer, p *pipeline.Parsed) { p.BTH.Opcode = wire.CNP }, 0},
	} {
		r, l, _ := answersTo(t)
		if l.conn.psns.shift() != 1 {
			t.Fatalf("%d requests have moved", l.conn.psns.shift())
		}
		flow, was, generation := l.flow, l.phase, l.generation
		l.assign(1, false)
		l.advance(1)
		p := heldRequest(l, wire.RCAck)
		p.BTH.PSN, p.AETH.Syndrome = l.conn.psns.own.Add(-1), wire.AckNoCredits
		psn := p.BTH.PSN
		c.change(l, p)
		r.do(func(ctx *pipeline.Ctx) { r.m.Response(ctx, seenFlow(flow), p) })
		if p.BTH.PSN != psn.Add(int(c.psn)) {
			t.Errorf("%s: PSN %v becomes %v", name, psn, p.BTH.PSN)
		}
		l.phase, l.generation, flow.Ext = was, generation, l
	}
}
