package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// duplicateOf is a request of these numbers that arrives once more.
func duplicateOf(op wire.Opcode, psn wire.PSN) *pipeline.Parsed {
	p := new(pipeline.Parsed)
	p.BTH = wire.BTH{Opcode: op, PSN: psn, AckReq: true}
	return p
}

// A request that the server has refused draws the fatal NAK again when it is repeated, and so does
// one behind it. One before it is answered.
func TestRepeatedRequestOfARefusedFlow(t *testing.T) {
	for at, again := range map[int]uint64{-1: 0, 0: 1, 1: 1} {
		r, l, got := answersTo(t)
		dead := l.next.Add(-2)
		l.phase, l.replies.deadPSN, l.replies.deadEnd, l.replies.fatal = refused, dead, dead, wire.NakRemoteAccess
		before := r.m.stats
		p := duplicateOf(wire.RCWriteOnly, dead.Add(at))
		r.do(func(ctx *pipeline.Ctx) {
			d := duplicate{l: l, c: ctx, p: p}
			if v := d.handle(); (v.Reason == ReasonDead) != (again == 1) {
				t.Errorf("%d behind the refused request: %+v", at, v)
			}
		})
		if s := r.m.stats; s.RefusedAgain-before.RefusedAgain != again || s.Duplicates-before.Duplicates != 1-again || len(*got) != int(again) || again == 1 && (*got)[0] != dead {
			t.Errorf("%d behind the refused request: answers to %v, want %v; %+v", at, *got, dead, s)
		}
	}
}

// A duplicate of a held request is not held again. It ends the wait of a CAS for its value. That of
// the first held one shows the interval at which the client's NIC retransmits.
func TestDuplicatesOfHeldRequests(t *testing.T) {
	for at, heard := range []bool{true, false} {
		for _, waits := range []bool{false, true} {
			r, l, _ := answersTo(t)
			first := l.next
			r.do(func(ctx *pipeline.Ctx) {
				holding(ctx, l, 2)
				if waits {
					l.waits.awaits = waiting{word: new(atomiccache.Word), time: time.Hour}
				}
				before := r.m.stats
				r.m.kick = false
				d := duplicate{l: l, c: ctx, p: duplicateOf(wire.RCSendOnly, first.Add(at))}
				if v := d.handle(); v != pipeline.Consume() || l.waits.held.n != 2 {
					t.Errorf("request %d: %+v, %d held", at, v, l.waits.held.n)
				}
				if s := r.m.stats; s.DuplicatesIgnored-before.DuplicatesIgnored != 1 || s.Duplicates-before.Duplicates != 1 || r.m.kick != waits || l.waits.awaits.word != nil {
					t.Errorf("request %d: held requests are looked at %v, %+v", at, r.m.kick, s)
				}
				if (l.waits.heard.first == first && l.waits.heard.sentAt == ctx.Now) != heard || (r.m.due.Len() == 1) != heard {
					t.Errorf("request %d: %+v, %d deadlines", at, l.waits.heard, r.m.due.Len())
				}
				l.giveUpHeld()
			})
		}
	}
}

// What is said to a duplicate of which the switch knows only that it was executed: the answer names
// the newest request that the server has executed, if no READ or atomic is between, and waits for a
// READ before it.
func TestExecutedDuplicates(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(l *sequencer, p *pipeline.Parsed)
		want    pipeline.Verdict
		again   uint64
		ignored uint64
		late    bool
	}{
		"WRITE":               {func(*sequencer, *pipeline.Parsed) {}, pipeline.Consume(), 1, 0, false},
		"SEND":                {func(_ *sequencer, p *pipeline.Parsed) { p.BTH.Opcode = wire.RCSendOnly }, pipeline.Consume(), 1, 0, false},
		"READ":                {func(_ *sequencer, p *pipeline.Parsed) { p.BTH.Opcode = wire.RCReadRequest }, pipeline.Drop(ReasonOld), 0, 0, false},
		"the newest":          {func(l *sequencer, p *pipeline.Parsed) { p.BTH.PSN = l.incomplete().Add(-1) }, pipeline.Consume(), 1, 0, false},
		"not executed":        {func(l *sequencer, p *pipeline.Parsed) { p.BTH.PSN = l.incomplete() }, pipeline.Drop(ReasonOld), 0, 0, false},
		"another incarnation": {func(l *sequencer, _ *pipeline.Parsed) { l.s.breaks++ }, pipeline.Drop(ReasonDead), 0, 0, false},
		"no acknowledgement":  {func(_ *sequencer, p *pipeline.Parsed) { p.BTH.AckReq = false }, pipeline.Consume(), 0, 1, false},
		"before an atomic": {func(l *sequencer, p *pipeline.Parsed) {
			l.replies.window.finish(l.replies.window.add(p.BTH.PSN.Add(1), wire.RCFetchAdd))
		}, pipeline.Consume(), 0, 1, false},
		"behind an atomic": {func(l *sequencer, p *pipeline.Parsed) {
			l.replies.window.finish(l.replies.window.add(p.BTH.PSN.Add(-1), wire.RCFetchAdd))
		}, pipeline.Consume(), 1, 0, false},
		"behind a READ": {func(l *sequencer, p *pipeline.Parsed) {
			read := l.replies.window.add(p.BTH.PSN.Add(-1), wire.RCReadRequest)
			l.replies.window.finish(read)
			l.replies.window.follow(read, evRedo)
		}, pipeline.Consume(), 0, 0, true},
	} {
		r, l, got := answersTo(t)
		l.replies.window = window{max: 8}
		p := duplicateOf(wire.RCWriteOnly, l.next.Add(-3))
		c.change(l, p)
		end := l.incomplete()
		before := r.m.stats
		r.do(func(ctx *pipeline.Ctx) {
			d := duplicate{l: l, c: ctx, p: p}
			if v := d.executed(); v != c.want {
				t.Errorf("%s: %+v, want %+v", name, v, c.want)
			}
		})
		s := r.m.stats
		if s.AnsweredAgain-before.AnsweredAgain != c.again || s.DuplicatesIgnored-before.DuplicatesIgnored != c.ignored || (s.TooOld != before.TooOld) != (c.want.Reason == ReasonOld) {
			t.Errorf("%s: %+v", name, s)
		}
		if c.again == 1 && (len(*got) != 1 || (*got)[0] != end.Add(-1)) {
			t.Errorf("%s: answers to %v, want %v", name, *got, end.Add(-1))
		}
		if l.replies.isLate != c.late || c.late && l.replies.late != end.Add(-1) {
			t.Errorf("%s: an answer to %v waits: %v", name, l.replies.late, l.replies.isLate)
		}
	}
}

// A duplicate that may be the first request of another connection ends the flow. The NAK names the
// first request that its client sends without an answer.
func TestSuspectDuplicates(t *testing.T) {
	for name, c := range map[string]struct {
		change func(l *sequencer)
		deaths uint64
		want   int // the refused PSN, behind that of the duplicate
	}{
		"first":          {func(*sequencer) {}, 1, 0},
		"an earlier one": {func(l *sequencer) { l.phase, l.replies.deadPSN, l.replies.deadEnd = refused, l.next.Add(-2), l.next }, 0, 0},
		"the same one":   {func(l *sequencer) { l.phase, l.replies.deadPSN, l.replies.deadEnd = refused, l.next.Add(-4), l.next }, 0, 0},
		"a later one":    {func(l *sequencer) { l.phase, l.replies.deadPSN, l.replies.deadEnd = refused, l.next.Add(-6), l.next }, 0, 0},
	} {
		r, l, got := answersTo(t)
		psn, end := l.next.Add(-4), l.incomplete()
		c.change(l)
		before := r.m.stats
		r.do(func(ctx *pipeline.Ctx) {
			d := duplicate{l: l, c: ctx, p: duplicateOf(wire.RCWriteOnly, psn)}
			if v := d.refuseSuspect(); v.Reason != ReasonDead {
				t.Errorf("%s: %+v", name, v)
			}
		})
		s := r.m.stats
		if s.Deaths-before.Deaths != c.deaths || s.RefusedAgain-before.RefusedAgain != 1 || l.phase != refused || l.replies.deadPSN != psn || l.replies.deadEnd != end {
			t.Errorf("%s: refused from %v to before %v, want %v to %v; %+v", name, l.replies.deadPSN, l.replies.deadEnd, psn, end, s)
		}
		if len(*got) != 1 || (*got)[0] != psn {
			t.Errorf("%s: NAKs of %v, want %v", name, *got, psn)
		}
	}
}

// What happens to a duplicate of a moved request depends on its record.
func TestDuplicatesOfMovedRequests(t *testing.T) {
	for name, c := range map[string]struct {
		op                     wire.Opcode
		state                  recordState
		suspect                bool
		none                   bool
		want                   pipeline.Verdict
		ignored, again, redone uint64
	}{
		"in flight":               {wire.RCFetchAdd, inFlight, false, false, pipeline.Consume(), 1, 0, 0},
		"in flight, suspect":      {wire.RCFetchAdd, inFlight, true, false, pipeline.Consume(), 1, 0, 0},
		"answered":                {wire.RCFetchAdd, done, false, false, pipeline.Consume(), 0, 1, 0},
		"answered, suspect":       {wire.RCFetchAdd, done, true, false, pipeline.Drop(ReasonDead), 0, 0, 0},
		"no record":               {wire.RCWriteOnly, done, false, true, pipeline.Consume(), 0, 1, 0},
		"no record, suspect":      {wire.RCWriteOnly, done, true, true, pipeline.Drop(ReasonDead), 0, 0, 0},
		"READ":                    {wire.RCReadRequest, done, false, false, pipeline.Consume(), 0, 0, 1},
		"READ, executed again":    {wire.RCReadRequest, redoingMoved, false, false, pipeline.Consume(), 1, 0, 0},
		"READ, no longer awaited": {wire.RCReadRequest, redoneLate, false, false, pipeline.Consume(), 0, 0, 1},
	} {
		r, l, _ := answersTo(t)
		psn := l.next.Add(-1)
		rec := inFlightOn(l, psn, c.op)
		l.out = 0
		if c.state != inFlight {
			l.replies.window.finish(rec)
		}
		l.replies.window.count(rec.state, -1)
		rec.state = c.state
		l.replies.window.count(rec.state, 1)
		if c.suspect {
			l.s.breaks++
		}
		if c.none {
			rec = nil
		}
		before, sent := r.m.stats, l.s.links[0].conn.Stats().Submitted
		r.do(func(ctx *pipeline.Ctx) {
			d := duplicate{l: l, c: ctx, p: duplicateOf(c.op, psn), r: rec}
			if v := d.ofMoved(); v != c.want {
				t.Errorf("%s: %+v, want %+v", name, v, c.want)
			}
		})
		s := r.m.stats
		if s.DuplicatesIgnored-before.DuplicatesIgnored != c.ignored || s.AnsweredAgain-before.AnsweredAgain != c.again || s.Redone-before.Redone != c.redone {
			t.Errorf("%s: %+v", name, s)
		}
		if c.redone == 1 {
			more := l.s.links[0].conn.Stats().Submitted - sent
			if (more == 1) != (c.state == done) {
				t.Errorf("%s: %d requests were submitted", name, more)
			}
		}
	}
}

// The switch waits for a READ that is executed again for Config.RedoTime from the first such READ on.
func TestWaitForRepeatedReads(t *testing.T) {
	r, l, _ := answersTo(t)
	l.replies.window = window{max: 8}
	var reads []*record
	for i := range 3 {
		read := l.replies.window.add(l.next.Add(i-3), wire.RCReadRequest)
		l.replies.window.finish(read)
		reads = append(reads, read)
	}
	r.do(func(ctx *pipeline.Ctx) {
		now := *ctx
		d := duplicate{l: l, c: &now}
		want := now.Now.Add(r.m.cfg.RedoTime)
		d.r = reads[0]
		d.redo(evPaid) // changes nothing
		if _, at := r.m.due.Next(); at != clock.Never {
			t.Errorf("no READ is executed again, and the switch waits until %v", at)
		}
		for i, read := range reads {
			d.r = read
			d.redo(evRedo)
			if _, at := r.m.due.Next(); l.replies.redoAt != want || at != want || l.replies.window.redos != i+1 || read.state != redoing {
				t.Errorf("READ %d: wait until %v, deadline %v, want %v; %d are executed again", i, l.replies.redoAt, at, want, l.replies.window.redos)
			}
			now.Now = now.Now.Add(10 * time.Microsecond)
		}
	})
	if r.m.stats.Redone != 4 {
		t.Errorf("%d were counted", r.m.stats.Redone)
	}
	r.run(2 * r.m.cfg.RedoTime)
	if _, at := r.m.due.Next(); l.replies.window.redos != 0 || at != clock.Never {
		t.Errorf("%d are executed again, deadline %v", l.replies.window.redos, at)
	}
}

// A duplicate on the client's connection that the server may not have executed passes if its words
// wait for it, or can begin to do so now.
func TestWhichDuplicatesMayPass(t *testing.T) {
	for name, c := range map[string]struct {
		change func(d *duplicate, w *atomiccache.Word)
		want   bool
		ops    uint32
	}{
		"not announced": {func(*duplicate, *atomiccache.Word) {}, true, 1},
		"announced":     {func(d *duplicate, _ *atomiccache.Word) { d.l.conn.announce(d.c.Now, &extent{99, 100, 64, 8}) }, true, 1},
		"busy word":     {func(d *duplicate, w *atomiccache.Word) { w.State = atomiccache.Busy; w.Foreign(d.c.Now) }, false, 0},
		"busy word, READ": {func(d *duplicate, w *atomiccache.Word) {
			w.State = atomiccache.Busy
			d.p.BTH.Opcode = wire.RCReadRequest
		}, true, 0},
		"busy word, no bytes":           {func(d *duplicate, w *atomiccache.Word) { w.State = atomiccache.Busy; d.p.RETH.Length = 0 }, true, 0},
		"busy word, executed":           {func(d *duplicate, w *atomiccache.Word) { w.State = atomiccache.Busy; d.l.conn.acked = 100 }, true, 0},
		"busy word, unknown server":     {func(d *duplicate, w *atomiccache.Word) { w.State = atomiccache.Busy; d.l.s.watch = false }, true, 0},
		"executed, another incarnation": {func(d *duplicate, _ *atomiccache.Word) { d.l.conn.acked = 100; d.l.s.breaks++ }, true, 1},
	} {
		r, l, _ := answersTo(t)
		r.do(func(ctx *pipeline.Ctx) {
			w := r.m.words.Get(ctx.Now, atomiccache.Key{VA: 64})
			l.s.watch, l.conn.acked = true, 99
			d := duplicate{l: l, c: ctx, p: duplicateOf(wire.RCWriteOnly, 99)}
			d.p.RETH = wire.RETH{VA: 64, Length: 8}
			c.change(&d, w)
			dropped := r.m.stats.RepeatsDropped
			if got := d.mayRepeat(99); got != c.want || l.conn.ops.tail != c.ops || (r.m.stats.RepeatsDropped != dropped) == c.want {
				t.Errorf("%s: %v, %d operations, %d dropped", name, got, l.conn.ops.tail, r.m.stats.RepeatsDropped-dropped)
			}
			w.State = atomiccache.Pass
		})
	}
}
