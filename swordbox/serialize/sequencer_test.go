package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// When the expected PSN becomes known, the requests before it have been executed if nothing else is
// in flight. Otherwise the acknowledgements go on.
func TestStartOfASequencer(t *testing.T) {
	const psn = wire.PSN(100)
	for name, c := range map[string]struct {
		phase   phase
		alone   bool
		acked   wire.PSN
		want    wire.PSN
		pending int
		msn     bool
	}{
		"first request":         {untouched, false, 0, psn, 1, true},
		"all answered":          {passing, true, 90, psn, 0, false},
		"some in flight":        {passing, false, 90, 90, 1, false},
		"none forwarded":        {partial, false, 90, psn, 1, false},
		"none forwarded, alone": {partial, true, 90, psn, 1, false},
		"acknowledged ahead":    {passing, false, 105, psn, 1, false},
		"acknowledged by one":   {passing, false, 101, psn, 1, false},
		"some not seen, alone":  {partialPassing, true, 90, psn, 0, false},
	} {
		_, l, _ := answersTo(t)
		l.phase, l.conn.acked, l.replies.hasMSN, l.conn.far, l.conn.psns.own = c.phase, c.acked, false, 0, 97
		w := l.m.words.Get(1, atomiccache.Key{VA: 64})
		op := l.conn.ops.add()
		op.end, op.word, op.decision = psn, w, w.Foreign(1)
		l.start(2, psn, c.alone)
		if l.phase != synced || l.next != psn || l.conn.acked != c.want || l.replies.hasMSN != c.msn || w.ClientPending() != c.pending {
			t.Errorf("%s: %v, next %v, executed before %v, MSN %v, the word waits for %d", name, l.phase, l.next, l.conn.acked, l.replies.hasMSN, w.ClientPending())
		}
		if l.conn.psns.client != psn || l.conn.psns.own != psn || l.conn.psns.max != l.m.cfg.Segments {
			t.Errorf("%s: the map begins with %v, %v", name, l.conn.psns.client, l.conn.psns.own)
		}
		if want := max(0, wire.Diff(97, c.acked)); l.conn.far != want {
			t.Errorf("%s: %d were in flight, want %d", name, l.conn.far, want)
		}
	}
}

// A flow may change its place when nothing of it is in flight anywhere.
func TestIdleFlows(t *testing.T) {
	for name, c := range map[string]struct {
		change func(l *sequencer)
		idle   bool
	}{
		"nothing in flight":      {func(*sequencer) {}, true},
		"on a shared connection": {func(l *sequencer) { l.out = 1 }, false},
		"in the window":          {func(l *sequencer) { l.replies.window = window{max: 8}; l.replies.window.add(100, wire.RCReadRequest) }, false},
		"not acknowledged":       {func(l *sequencer) { l.conn.acked = l.conn.acked.Add(-1) }, false},
		"in a message":           {func(l *sequencer) { l.conn.msg = inMessage }, false},
	} {
		_, l, _ := answersTo(t)
		l.place = 3
		if c.change(l); l.idle() != c.idle || l.canGo(placeOwn) != c.idle || !l.canGo(3) {
			t.Errorf("%s: idle %v, can go %v, %v", name, l.idle(), l.canGo(placeOwn), l.canGo(3))
		}
	}
}

// The oldest request without an answer is on the client's connection or in the window, whichever
// comes first.
func TestOldestUnansweredRequest(t *testing.T) {
	for name, c := range map[string]struct {
		change func(l *sequencer)
		want   int // before the next PSN
	}{
		"none":                   {func(*sequencer) {}, 0},
		"on the connection":      {func(l *sequencer) { l.conn.acked = l.conn.acked.Add(-3) }, 3},
		"a READ of unknown span": {func(l *sequencer) { l.conn.acked = l.conn.acked.Add(-3); l.conn.msg = openRead }, 0},
		"a record":               {func(l *sequencer) { l.replies.window.add(l.conn.psns.client.Add(-2), wire.RCReadRequest).span = 2 }, 2},
		"a record in part":       {func(l *sequencer) { l.replies.window.add(l.conn.psns.client.Add(-2), wire.RCReadRequest).got = 1 }, 1},
		"a WRITE before a record": {func(l *sequencer) {
			l.conn.acked = l.conn.acked.Add(-4)
			l.replies.window.add(l.conn.psns.client.Add(-2), wire.RCReadRequest)
		}, 4},
		"a record before a WRITE": {func(l *sequencer) {
			l.conn.acked = l.conn.acked.Add(-1)
			l.replies.window.add(l.conn.psns.client.Add(-2), wire.RCReadRequest)
		}, 2},
	} {
		_, l, _ := answersTo(t)
		l.replies.window = window{max: 8}
		if c.change(l); l.incomplete() != l.conn.psns.client.Add(-c.want) {
			t.Errorf("%s: %v, want %d before %v", name, l.incomplete(), c.want, l.conn.psns.client)
		}
	}
}

// Whether requests of a flow may move is asked once. Those of a flow whose client or whose server's
// incarnation is not known, or that has failed or is ending, do not.
func TestWhichFlowsMayMove(t *testing.T) {
	for name, c := range map[string]struct {
		change func(l *sequencer)
		asked  int
		may    bool
	}{
		"proven":         {func(*sequencer) {}, 1, true},
		"given":          {func(l *sequencer) { l.permit = permitGiven }, 0, true},
		"denied":         {func(l *sequencer) { l.permit = permitDenied }, 0, false},
		"unknown client": {func(l *sequencer) { l.flow.ReqQPN = 0 }, 0, false},
		"unknown MSN":    {func(l *sequencer) { l.replies.hasMSN = false }, 0, false},
		"refused":        {func(l *sequencer) { l.phase = refused }, 0, false},
		"ending":         {func(l *sequencer) { l.flow.State = conntrack.Closing }, 0, false},
		"not proven":     {func(l *sequencer) { l.s.incarnation++ }, 0, false},
	} {
		for _, allowed := range []bool{true, false} {
			r, l, _ := answersTo(t)
			asked, told := 0, 0
			r.m.cfg.Moving = func(*conntrack.Flow) bool { asked++; return allowed }
			r.m.cfg.Answered = func(*conntrack.Flow, wire.PSN) { told++ }
			l.permit = permitUnknown
			c.change(l)
			may := c.may && (allowed || c.asked == 0)
			for range 2 {
				if l.mayMove() != may {
					t.Errorf("%s, allowed %v: %v", name, allowed, !may)
				}
			}
			want := 0
			if c.asked == 1 && allowed {
				want = 1
			}
			if asked != c.asked || told != want || r.m.stats.NotRecorded != uint64(c.asked-want) {
				t.Errorf("%s, allowed %v: asked %d times, told %d times, %d not recorded", name, allowed, asked, told, r.m.stats.NotRecorded)
			}
			l.phase, l.flow.State = synced, conntrack.Open
		}
	}
}

// holding makes a sequencer hold a copy of a request.
func holding(ctx *pipeline.Ctx, l *sequencer, n int) {
	for range n {
		l.waits.held.push(&l.m.held, l.m.keep(ctx, l.flow, make([]byte, 64), 1))
		l.next = l.next.Add(1)
	}
	l.m.blocked.add(l)
}

// A sequencer is called when its held requests may be given up, when a CAS has waited for its value
// for long enough, and when a READ is not awaited any more; not when there are none.
func TestDeadlineOfASequencer(t *testing.T) {
	r, l, _ := answersTo(t)
	r.do(func(ctx *pipeline.Ctx) {
		at := func() clock.Time {
			l.schedule()
			_, at := r.m.due.Next()
			return at
		}
		if got := at(); got != clock.Never {
			t.Errorf("nothing waits: %v", got)
		}
		w := r.m.words.Get(ctx.Now, atomiccache.Key{VA: 64})
		l.waits.awaits = waiting{word: w, time: time.Millisecond}
		l.replies.redoAt = ctx.Now + 5
		if got := at(); got != clock.Never {
			t.Errorf("nothing is held or executed again: %v", got)
		}
		holding(ctx, l, 1)
		l.waits.heard.at = ctx.Now
		if got, want := at(), ctx.Now.Add(time.Millisecond); got != want {
			t.Errorf("a CAS waits: %v, want %v", got, want)
		}
		l.waits.awaits = waiting{}
		if got, want := at(), ctx.Now.Add(r.m.cfg.HoldTime); got != want {
			t.Errorf("a request is held: %v, want %v", got, want)
		}
		l.waits.awaits = waiting{word: w, time: time.Hour}
		if got, want := at(), ctx.Now.Add(r.m.cfg.HoldTime); got != want {
			t.Errorf("a CAS waits for long: %v, want %v", got, want)
		}
		l.replies.window.redos = 1
		if got, want := at(), ctx.Now+5; got != want {
			t.Errorf("a READ is executed again: %v, want %v", got, want)
		}
		l.replies.window.redos = 0
		l.giveUpHeld()
		if _, got := r.m.due.Next(); got != clock.Never || l.waits.awaits.word != nil {
			t.Errorf("nothing waits any more: %v", got)
		}
	})
}

// A CAS stops waiting at the end of its time, and a READ is awaited until its own; not before.
func TestTickOfASequencer(t *testing.T) {
	for _, early := range []clock.Time{1, 0} {
		r, l, _ := answersTo(t)
		l.replies.window = window{max: 8}
		r.do(func(ctx *pipeline.Ctx) {
			holding(ctx, l, 1)
			l.waits.heard.at = ctx.Now
			l.waits.awaits = waiting{word: r.m.words.Get(ctx.Now, atomiccache.Key{VA: 64}), time: time.Millisecond}
			read := l.replies.window.add(l.conn.psns.client.Add(-1), wire.RCReadRequest)
			l.replies.window.finish(read)
			l.replies.window.follow(read, evRedo)
			l.replies.redoAt = ctx.Now.Add(time.Millisecond)
			later := *ctx
			later.Now = later.Now.Add(time.Millisecond) - early
			r.m.kick = false
			l.tick(&later)
			if over := early == 0; (l.waits.awaits.word == nil) != over || r.m.kick != over || (l.replies.window.redos == 0) != over {
				t.Errorf("%d ns before the end: waits %v, held requests are looked at %v, %d READs awaited", early, l.waits.awaits.word != nil, r.m.kick, l.replies.window.redos)
			}
			if r.m.due.Len() != 1 || l.waits.held.n != 1 {
				t.Errorf("%d deadlines, %d held", r.m.due.Len(), l.waits.held.n)
			}
			l.waits.awaits, r.m.kick = waiting{}, false
			if l.tick(&later); r.m.kick {
				t.Error("no CAS waits, and held requests are looked at")
			}
			l.giveUpHeld()
		})
	}
}

// Held requests that are given up count as not received, unless the expected PSN is not known.
func TestHeldRequestsAreGivenUp(t *testing.T) {
	for _, p := range []phase{synced, refused, partial} {
		r, l, _ := answersTo(t)
		first := l.next
		r.do(func(ctx *pipeline.Ctx) {
			holding(ctx, l, 3)
			l.phase = p
			l.giveUpHeld()
			want := first
			if p == partial {
				want = first.Add(3)
			}
			if l.waits.held.n != 0 || r.m.held.inUse != 0 || l.next != want || (l.flow.Expected == want) != (p != partial) || r.m.stats.HeldDropped != 3 {
				t.Errorf("%v: %d held, next %v, expected %v, want %v; %d dropped", p, l.waits.held.n, l.next, l.flow.Expected, want, r.m.stats.HeldDropped)
			}
			l.phase = synced
		})
	}
}

// A flow dies once, and a closed one holds nothing and has no deadline.
func TestDeathAndEndOfASequencer(t *testing.T) {
	r, l, _ := answersTo(t)
	r.do(func(ctx *pipeline.Ctx) {
		holding(ctx, l, 2)
		l.conn.ops.add().end = l.conn.psns.own
		l.flow.Pinned = true
		l.die(ctx.Now, 50, wire.NakRemoteAccess)
		l.die(ctx.Now, 60, wire.NakRemoteOp)
		if l.phase != refused || l.replies.deadPSN != 50 || l.replies.deadEnd != 50 || l.replies.fatal != wire.NakRemoteAccess || r.m.stats.Deaths != 1 || l.flow.Pinned || l.waits.held.n != 0 || l.conn.ops.head != l.conn.ops.tail {
			t.Errorf("%v, refused %v to %v, %v; %d deaths, %d held", l.phase, l.replies.deadPSN, l.replies.deadEnd, l.replies.fatal, r.m.stats.Deaths, l.waits.held.n)
		}
		l.phase = synced
		holding(ctx, l, 2)
		l.naks = nakOwed
		l.schedule()
		l.out = 1
		if l.close(); l.phase != closed || l.waits.held.n != 0 || r.m.held.inUse != 0 || r.m.due.Len() != 0 || len(r.m.blocked.list) != 0 || len(r.m.flows.free) != 0 {
			t.Errorf("%v, %d held, %d deadlines, %d flows wait, free %v", l.phase, l.waits.held.n, r.m.due.Len(), len(r.m.blocked.list), r.m.flows.free)
		}
		l.out = 0
		if l.reap(); len(r.m.flows.free) != 1 || r.m.flows.list[l.index] != nil {
			t.Error("its last request has ended, and its index is in use")
		}
	})
}
