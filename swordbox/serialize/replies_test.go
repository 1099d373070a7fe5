package serialize

import (
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// The MSN of answers never decreases, also where it wraps.
func TestMSNsOfAnswers(t *testing.T) {
	a := &replies{}
	for _, c := range [][2]uint32{{5, 5}, {4, 5}, {6, 6}, {1<<24 | 7, 7}, {mask24, 7}} {
		if got := a.raiseMSN(c[0]); got != c[1] || a.msn != c[1] || !a.hasMSN {
			t.Errorf("an answer with MSN %d gets %d, want %d", c[0], got, c[1])
		}
	}
	a.msn = mask24 - 1
	if a.countMSN(); a.msn != mask24 {
		t.Errorf("MSN %d", a.msn)
	}
	if a.countMSN(); a.msn != 0 {
		t.Errorf("MSN %d behind the largest", a.msn)
	}
	a = &replies{msn: 9}
	if got := a.raiseMSN(3); got != 3 {
		t.Errorf("the first MSN is %d", got)
	}
}

// The fatal NAK of a refused flow names the request that the client sends, but none before the
// refused one or behind the executed ones.
func TestWhatTheFatalNakNames(t *testing.T) {
	for psn, want := range map[wire.PSN]wire.PSN{40: 50, 50: 50, 51: 51, 54: 54, 55: 55, 56: 55, 60: 55} {
		r, l, got := answersTo(t)
		l.phase, l.replies.deadPSN, l.replies.deadEnd, l.replies.fatal = refused, 50, 55, wire.NakRemoteOp
		r.do(func(ctx *pipeline.Ctx) {
			if v := l.replies.refuseAgain(ctx, psn); v.Reason != ReasonDead {
				t.Errorf("%+v", v)
			}
		})
		if !slices.Equal(*got, []wire.PSN{want}) || l.replies.deadPSN != want || r.m.stats.RefusedAgain != 1 {
			t.Errorf("request %v: NAKs of %v, want %v", psn, *got, want)
		}
	}
}

// Answers take the path of the server's responses, if there is one to the client's queue pair.
func TestPathOfAnswers(t *testing.T) {
	there := transform.Path{DestQP: 7, SrcPort: 1}
	there.Eth.Src = macOf(1)
	back := transform.Path{DestQP: 5, SrcPort: 2}
	for name, c := range map[string]struct {
		peer *conntrack.Flow
		want uint16
	}{
		"none":               {nil, 1},
		"without a response": {&conntrack.Flow{Route: conntrack.Route{Path: back}}, 1},
		"to another":         {&conntrack.Flow{Route: conntrack.Route{Path: transform.Path{DestQP: 6, SrcPort: 2}, HasPath: true}}, 1},
		"of a response":      {&conntrack.Flow{Route: conntrack.Route{Path: back, HasPath: true}}, 2},
	} {
		a := &replies{m: &Machine{}, flow: &conntrack.Flow{Peer: c.peer}}
		a.flow.ReqQPN, a.flow.Path = 5, there
		p := a.back()
		if p.SrcPort != c.want || p.DestQP != 5 || c.want == 1 && p.Eth.Dst != macOf(1) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// The answers that are owed are sent up to the next READ that is executed again. When READs are not
// awaited any more, those before a PSN are not, and the answers behind them are sent.
func TestOwedAnswers(t *testing.T) {
	const first = wire.PSN(100)
	begin := func() (*rig, *sequencer, *[]wire.PSN) {
		r, l, got := answersTo(t)
		l.replies.window = window{max: 16}
		for i, op := range []wire.Opcode{wire.RCReadRequest, wire.RCFetchAdd, wire.RCFetchAdd, wire.RCReadRequest, wire.RCFetchAdd, wire.RCFetchAdd} {
			rec := l.replies.window.add(first.Add(i), op)
			rec.span = 1
			l.replies.window.finish(rec)
			if op == wire.RCReadRequest {
				l.replies.window.follow(rec, evRedo)
			} else if i != 2 {
				l.replies.window.follow(rec, evOwe)
			}
		}
		return r, l, got
	}
	for psn, want := range map[int][]wire.PSN{0: nil, 1: {101}, 3: {101}, 4: {101, 104, 105}} {
		r, l, got := begin()
		r.do(func(ctx *pipeline.Ctx) { l.replies.endRedos(ctx, first.Add(psn)) })
		redos := 2
		if psn > 0 {
			redos--
		}
		if psn > 3 {
			redos--
		}
		if !slices.Equal(*got, want) || l.replies.window.redos != redos || l.replies.window.owed != 3-len(want) {
			t.Errorf("READs before %d are not awaited: answers %v, want %v; %d READs, %d owed", psn, *got, want, l.replies.window.redos, l.replies.window.owed)
		}
	}
	r, l, got := begin()
	r.do(func(ctx *pipeline.Ctx) {
		l.replies.answerOwed(ctx)
		if l.replies.window.owed != 3 {
			t.Error("an answer is sent before the READ")
		}
		l.endRedo(ctx, first)
		l.endRedo(ctx, first) // once
		l.endRedo(ctx, first.Add(3))
	})
	if !slices.Equal(*got, []wire.PSN{101, 104, 105}) || l.replies.window.redos != 0 || l.replies.window.owed != 0 || r.m.stats.AnsweredAgain != 0 {
		t.Errorf("answers %v, %d READs, %d owed", *got, l.replies.window.redos, l.replies.window.owed)
	}
	// The answer to a late WRITE is counted, and sent once.
	l.replies.late, l.replies.isLate = 106, true
	r.do(func(ctx *pipeline.Ctx) { l.replies.answerOwed(ctx); l.replies.answerOwed(ctx) })
	if n := len(*got); n != 4 || (*got)[3] != 106 || r.m.stats.AnsweredAgain != 1 {
		t.Errorf("answers %v, %d counted", *got, r.m.stats.AnsweredAgain)
	}
}

// A second duplicate of a request whose answer is owed shows that the client does not await the
// READ before it.
func TestSecondDuplicateOfAnOwedAnswer(t *testing.T) {
	r, l, got := answersTo(t)
	l.replies.window = window{max: 8}
	read := l.replies.window.add(100, wire.RCReadRequest)
	l.replies.window.finish(read)
	atomic := l.replies.window.add(101, wire.RCFetchAdd)
	l.replies.window.finish(atomic)
	for i, want := range []struct {
		answers int
		state   recordState
		redos   int
	}{{1, done, 0}, {1, owed, 1}, {2, done, 0}} {
		if i == 1 {
			l.replies.window.follow(read, evRedo)
		}
		r.do(func(ctx *pipeline.Ctx) {
			d := duplicate{l: l, c: ctx, p: duplicateOf(wire.RCFetchAdd, 101), r: atomic}
			if v := d.answerAgain(); v != pipeline.Consume() {
				t.Errorf("%+v", v)
			}
		})
		if len(*got) != want.answers || atomic.state != want.state || l.replies.window.redos != want.redos || r.m.stats.AnsweredAgain != uint64(i+1) {
			t.Errorf("duplicate %d: answers %v, %v, %d READs awaited", i, *got, atomic.state, l.replies.window.redos)
		}
	}
}
