package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
)

// answersTo returns a rig, a sequencer of it, and the answers that the client gets.
func answersTo(t *testing.T) (*rig, *sequencer, *[]wire.PSN) {
	t.Helper()
	r := newRig(t, rigConfig{clients: 1, rules: moveRule(1)})
	l := r.sequencerOf(r.connect(0))
	var got []wire.PSN
	r.tap = func(up bool, port int, data []byte) bool {
		if !up && port == 0 {
			got = append(got, parse(data).BTH.PSN)
		}
		return true
	}
	return r, l, &got
}

// The answer to a late WRITE, of which the window has no record any more, waits for the READ before
// it that is executed again, and for no READ behind it.
func TestLateAnswerWaitsForTheReadBeforeIt(t *testing.T) {
	for psn, want := range map[wire.PSN]int{99: 0, 101: 1} {
		r, l, got := answersTo(t)
		l.replies.window = window{max: 8}
		read := l.replies.window.add(psn, wire.RCReadRequest)
		l.replies.window.finish(read)
		l.replies.window.follow(read, evRedo)
		l.replies.late, l.replies.isLate = 100, true
		r.do(func(c *pipeline.Ctx) { l.replies.answerOwed(c) })
		if len(*got) != want || want == 1 && (*got)[0] != 100 || l.replies.isLate != (want == 0) {
			t.Errorf("READ %v: the client gets answers to %v", psn, *got)
		}
	}
}

// The response to a READ that was executed again is not sent if the READ was forgotten meanwhile,
// or its connection has ended.
func TestResponseToAForgottenRead(t *testing.T) {
	answer := requester.Answer{Kind: requester.Read, Frame: new(wire.Frame)}
	answer.Frame.BTH.Opcode = wire.RCReadResponseOnly
	for name, forget := range map[string]func(l *sequencer, r *record) *record{
		"neither":   func(_ *sequencer, r *record) *record { return r },
		"forgotten": func(*sequencer, *record) *record { return nil },
		"ended":     func(l *sequencer, r *record) *record { l.phase = closed; return r },
	} {
		r, l, got := answersTo(t)
		l.replies.window = window{max: 8}
		read := l.replies.window.add(100, wire.RCReadRequest)
		l.replies.window.finish(read)
		l.replies.window.follow(read, evRedoMoved)
		rec := forget(l, read)
		r.do(func(c *pipeline.Ctx) { l.redone(c, rec, answer) })
		if want := map[bool]int{true: 1}[name == "neither"]; len(*got) != want {
			t.Errorf("%s: the client gets responses to %v", name, *got)
		}
	}
}

// Only the response to a READ is sent to its client: not the end of a READ without one, and no
// response that belongs to another request.
func TestWhichResponsesAreSent(t *testing.T) {
	for _, c := range []struct {
		op   wire.Opcode
		kind requester.Kind
		want int
	}{{wire.RCReadRequest, requester.Read, 1}, {wire.RCReadRequest, requester.Lost, 0}, {wire.RCFetchAdd, requester.Read, 0}} {
		r, l, got := answersTo(t)
		l.replies.window = window{max: 8}
		rec := l.replies.window.add(100, c.op)
		l.replies.window.finish(rec)
		f := new(wire.Frame)
		f.BTH.Opcode = wire.RCReadResponseOnly
		r.do(func(ctx *pipeline.Ctx) { l.redone(ctx, rec, requester.Answer{Kind: c.kind, Frame: f}) })
		if len(*got) != c.want || rec.state != done {
			t.Errorf("%+v: responses %v, %v", c, *got, rec.state)
		}
	}
}

// A READ that no answer waits for any more is done when its response arrives again.
func TestLateResponseToARead(t *testing.T) {
	r, l, got := answersTo(t)
	l.replies.window = window{max: 8}
	rec := l.replies.window.add(100, wire.RCReadRequest)
	l.replies.window.finish(rec)
	l.replies.window.follow(rec, evRedoMoved)
	l.replies.window.follow(rec, evWaitNoMore)
	f := new(wire.Frame)
	f.BTH.Opcode = wire.RCReadResponseOnly
	r.do(func(ctx *pipeline.Ctx) { l.redone(ctx, rec, requester.Answer{Kind: requester.Read, Frame: f}) })
	if len(*got) != 1 || rec.state != done || l.replies.window.redos != 0 {
		t.Errorf("responses %v, %v, %d READs awaited", *got, rec.state, l.replies.window.redos)
	}
}

// While the PSN that the server expects is not known, all earlier requests of a flow have ended when
// none was forwarded, when the newest is acknowledged, or when no NIC would repeat it any more.
func TestEndOfLooseRequests(t *testing.T) {
	r, l, _ := answersTo(t)
	l.phase = untouched
	if now := r.now; l.cleanSince(now) != now {
		t.Error("nothing was forwarded, and a request is in flight")
	}
	r.run(time.Second)
	p := new(pipeline.Parsed)
	p.BTH.Opcode, p.BTH.PSN = wire.RCSendOnly, 100
	r.do(func(c *pipeline.Ctx) { l.looseRequest(c, conntrack.Seen{Span: 1}, p) })
	budget := l.m.cfg.Words.Budget
	for after, ended := range map[time.Duration]bool{0: false, budget: false, budget + 1: true} {
		now := r.now.Add(after)
		if got := l.cleanSince(now); (got == now) != ended {
			t.Errorf("%v after a request was forwarded: all before %v have ended", after, got)
		}
	}
	l.conn.acked = l.conn.psns.own
	if now := r.now; l.cleanSince(now) != now {
		t.Error("the request is acknowledged, and still in flight")
	}
}
