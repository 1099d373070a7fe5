package serialize

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// What becomes of the next request of a flow.
func TestNextRequestOfAFlow(t *testing.T) {
	unmoved := func(l *sequencer) { l.conn.psns.start(l.next, 8); l.conn.acked = l.conn.psns.own }
	for name, c := range map[string]struct {
		op     wire.Opcode
		change func(l *sequencer, p *pipeline.Parsed)
		want   pipeline.Verdict
		psns   int
		more   uint64 // rewritten
	}{
		"own":                   {wire.RCSendOnly, func(l *sequencer, _ *pipeline.Parsed) { unmoved(l) }, pipeline.Forward(), 1, 0},
		"own, with another PSN": {wire.RCSendOnly, func(*sequencer, *pipeline.Parsed) {}, pipeline.Rewrite(), 1, 1},
		"own, acknowledged":     {wire.RCSendOnly, func(l *sequencer, p *pipeline.Parsed) { unmoved(l); p.BTH.AckReq = false }, pipeline.Rewrite(), 1, 1},
		"moved":                 {wire.RCReadRequest, func(*sequencer, *pipeline.Parsed) {}, pipeline.Rewrite(), 1, 0},
		"moved, behind held":    {wire.RCReadRequest, func(l *sequencer, _ *pipeline.Parsed) { l.m.blocked.list = append(l.m.blocked.list, &sequencer{}) }, pipeline.Consume(), 1, 0},
		"place not free":        {wire.RCSendOnly, func(l *sequencer, _ *pipeline.Parsed) { l.place, l.out = 0, 1 }, pipeline.Consume(), 1, 0},
		"behind a held one":     {wire.RCSendOnly, func(l *sequencer, _ *pipeline.Parsed) { l.waits.held.n = 1 }, pipeline.Consume(), 1, 0},
		"refused":               {wire.RCSendOnly, func(l *sequencer, _ *pipeline.Parsed) { l.phase = refused }, pipeline.Drop(ReasonDead), 0, 0},
		"unknown span, again":   {wire.RCReadRequest, func(l *sequencer, _ *pipeline.Parsed) { l.conn.msg = openRead }, pipeline.Rewrite(), 0, 0},
	} {
		r, l, _ := answersTo(t)
		p := heldRequest(l, c.op)
		own, next, before, expected := l.conn.psns.own, l.next, r.m.stats.Rewritten, l.flow.Expected
		r.do(func(ctx *pipeline.Ctx) {
			if l.waits.held.n = 0; name == "behind a held one" {
				holding(ctx, l, 1)
				l.next, next = p.BTH.PSN, p.BTH.PSN
			}
			if c.change(l, p); name == "unknown span, again" && l.conn.psns.client != p.BTH.PSN {
				t.Fatal("it is another request")
			}
			l.naks = nakSent
			if v := l.newRequest(ctx, conntrack.Seen{Span: 1}, p); v != c.want {
				t.Errorf("%s: %+v, want %+v", name, v, c.want)
			}
			if l.next != next.Add(c.psns) || r.m.stats.Rewritten-before != c.more || l.naks != inOrder || (l.flow.Expected == expected) == (c.psns == 1) {
				t.Errorf("%s: next %v behind %v, %d rewritten, %v", name, l.next, next, r.m.stats.Rewritten-before, l.naks)
			}
			if c.want.Action == pipeline.ActRewrite && c.op == wire.RCReadRequest && l.conn.msg == openRead && p.BTH.PSN != own {
				t.Errorf("%s: PSN %v, want %v", name, p.BTH.PSN, own)
			}
			l.conn.msg, l.out, r.m.blocked.list, l.phase = between, 0, nil, synced
			for l.waits.held.n > 0 {
				r.m.popHeld(&l.waits.held)
			}
		})
	}
}

// A capture says of a request on a shared connection that it waits only if it does.
func TestNoteOfARequestBehindHeldOnes(t *testing.T) {
	r, l, _ := answersTo(t)
	r.sw.Observe(true)
	r.do(func(ctx *pipeline.Ctx) {
		r.m.blocked.list = []*sequencer{{}}
		if v := l.newRequest(ctx, conntrack.Seen{Span: 1}, heldRequest(l, wire.RCReadRequest)); v != pipeline.Consume() {
			t.Errorf("%+v", v)
		}
		r.m.blocked.list = nil
	})
}

// The response to a READ of unknown span passes, and shows the span.
func TestResponseToAReadOfUnknownSpan(t *testing.T) {
	for back, want := range map[int]pipeline.Action{0: pipeline.ActRewrite, -1: pipeline.ActDrop} {
		r, l, _ := answersTo(t)
		l.replies.window = window{max: 8}
		rec := l.replies.window.add(l.next, wire.RCReadRequest)
		rec.own, rec.span, rec.place, rec.length = l.conn.psns.own, 1, placeOwn, 8
		l.conn.msg = openRead
		next, own := l.next, l.conn.psns.own
		p := heldRequest(l, wire.RCReadResponseOnly)
		p.BTH.PSN, p.AETH.Syndrome, p.Payload = own.Add(-back), wire.AckNoCredits, make([]byte, 8)
		r.do(func(ctx *pipeline.Ctx) {
			if v := l.response(ctx, p); v.Action != want {
				t.Errorf("%+v, want %v", v, want)
			}
		})
		if known := want == pipeline.ActRewrite; (rec.state == done) != known || known && (p.BTH.PSN != next || l.next != next.Add(1) || l.conn.acked != own.Add(1) || l.conn.msg != between) {
			t.Errorf("PSN %v, next %v, acknowledged before %v, %v", p.BTH.PSN, l.next, l.conn.acked, l.conn.msg)
		}
		l.conn.msg = between
	}
}

// The refusal of a READ of unknown span passes, too, and ends the flow.
func TestRefusalOfAReadOfUnknownSpan(t *testing.T) {
	r, l, _ := answersTo(t)
	l.replies.window = window{max: 8}
	rec := l.replies.window.add(l.next, wire.RCReadRequest)
	rec.own, rec.span, rec.place = l.conn.psns.own, 1, placeOwn
	l.conn.msg = openRead
	read := l.next
	p := heldRequest(l, wire.RCAck)
	p.BTH.PSN, p.AETH.Syndrome = l.conn.psns.own, wire.NakRemoteAccess
	r.do(func(ctx *pipeline.Ctx) {
		if v := l.response(ctx, p); v.Action != pipeline.ActRewrite {
			t.Errorf("%+v", v)
		}
	})
	if p.BTH.PSN != read || l.phase != refused || l.replies.deadPSN != read || l.replies.fatal != wire.NakRemoteAccess || l.conn.msg != between {
		t.Errorf("PSN %v, want %v; %v from %v on, %v", p.BTH.PSN, read, l.phase, l.replies.deadPSN, l.conn.msg)
	}
}

// Every packet of a WRITE behind the first one makes the words wait that do not wait for the WRITE
// yet, and no others.
func TestPacketsBehindTheFirst(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *rig, g *placing, w *atomiccache.Word)
		want   outcome
		ops    uint32
	}{
		"no word":    {func(_ *rig, g *placing, _ *atomiccache.Word) { g.l.conn.rest.va += 4096 }, sentOwn, 0},
		"a new word": {func(*rig, *placing, *atomiccache.Word) {}, sentOwn, 1},
		"it waits": {func(_ *rig, g *placing, _ *atomiccache.Word) {
			g.l.conn.announce(g.c.Now, &extent{g.l.conn.rest.first, g.l.conn.rest.end, g.l.conn.rest.va, 24})
		}, sentOwn, 1},
		"it waits for less": {func(_ *rig, g *placing, _ *atomiccache.Word) {
			g.l.conn.announce(g.c.Now, &extent{g.l.conn.rest.first, g.l.conn.rest.end.Add(-1), g.l.conn.rest.va, 24})
		}, sentOwn, 2},
		"busy": {func(_ *rig, g *placing, w *atomiccache.Word) { w.State = atomiccache.Busy; w.Foreign(g.c.Now) }, mustWait, 0},
		"room comes": {func(_ *rig, g *placing, _ *atomiccache.Word) {
			g.l.conn.ops.max = 1
			g.l.conn.ops.add().end = g.l.conn.rest.first
		}, mustWait, 1},
		"no room comes": {func(_ *rig, g *placing, _ *atomiccache.Word) {
			g.l.conn.ops.max = 1
			g.l.conn.ops.add().end = g.l.conn.rest.end
		}, sentOwn, 1},
	} {
		placed(t, atomicsRule(1), wire.RCWriteMiddle, func(r *rig, g *placing) {
			w := r.m.words.Get(g.c.Now, atomiccache.Key{VA: r.server.base + 64})
			own := g.l.conn.psns.own
			g.l.conn.msg, g.l.place = inMessage, placeOwn
			g.l.conn.rest = rest{va: r.server.base + 64, n: 20, first: own.Add(-1), end: own.Add(3)}
			c.change(r, g, w)
			was := g.l.conn.rest
			if out := g.dispatch(); out != c.want || g.l.conn.ops.tail-g.l.conn.ops.head != c.ops {
				t.Errorf("%s: %v, %d operations", name, out, g.l.conn.ops.tail-g.l.conn.ops.head)
			}
			want := was
			if c.want == sentOwn {
				want.va, want.n = was.va+8, was.n-8
			}
			if g.l.conn.rest != want {
				t.Errorf("%s: %+v, want %+v", name, g.l.conn.rest, want)
			}
			if op := g.l.conn.ops.newest(); name == "a new word" && (op.first != own || op.end != was.end || op.va != was.va || op.n != 20) {
				t.Errorf("%s: %+v", name, op)
			}
			w.State, g.l.conn.msg, g.l.conn.acked = atomiccache.Pass, between, g.l.conn.psns.own
		})
	}
}

// The packets of a WRITE whose first packet was not seen: every word waits for them.
func TestPacketsOfAnUnknownWrite(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *rig, g *placing, w *atomiccache.Word)
		want   outcome
		ops    uint32
	}{
		"unknown":            {func(*rig, *placing, *atomiccache.Word) {}, sentOwn, 1},
		"words do not count": {func(_ *rig, g *placing, _ *atomiccache.Word) { g.l.s.watch = false }, sentOwn, 0},
		"shared in flight":   {func(_ *rig, g *placing, _ *atomiccache.Word) { g.l.place, g.l.out = 0, 1 }, mustWait, 0},
		"busy":               {func(_ *rig, g *placing, w *atomiccache.Word) { w.State = atomiccache.Busy; w.Foreign(g.c.Now) }, mustWait, 0},
		"no room": {func(_ *rig, g *placing, _ *atomiccache.Word) {
			g.l.conn.ops.max = 1
			g.l.conn.ops.add().end = g.l.conn.psns.own
		}, sentOwn, 1},
		"known, room comes": {func(r *rig, g *placing, _ *atomiccache.Word) {
			g.l.conn.ops.max = 2
			g.l.conn.ops.add().end = g.l.conn.psns.own.Add(-1)
			op := g.l.conn.ops.add()
			op.first, op.end, op.all, op.va, op.n = g.l.conn.psns.own.Add(-1), g.l.conn.psns.own.Add(2), true, r.server.base, 4096
		}, mustWait, 2},
	} {
		placed(t, atomicsRule(1), wire.RCWriteMiddle, func(r *rig, g *placing) {
			w := r.m.words.Get(g.c.Now, atomiccache.Key{VA: r.server.base + 64})
			own := g.l.conn.psns.own
			c.change(r, g, w)
			if out := g.dispatch(); out != c.want || g.l.conn.ops.tail-g.l.conn.ops.head != c.ops {
				t.Errorf("%s: %v, %d operations", name, out, g.l.conn.ops.tail-g.l.conn.ops.head)
			}
			if op := g.l.conn.ops.newest(); name == "unknown" && (op.first != own || op.end != own.Add(1) || op.n != atomiccache.Everything) {
				t.Errorf("%s: %+v", name, op)
			}
			w.State, g.l.out, g.l.conn.acked = atomiccache.Pass, 0, g.l.conn.psns.own
		})
	}
}

// Held requests go while the step may send packets; the rest goes in the next one. Afterwards the
// sequencer has no deadline.
func TestReleaseStopsInTime(t *testing.T) {
	for spare, want := range map[int]int{spareEmits - 1: 3, spareEmits: 2, spareEmits + 1: 1, spareEmits + 10: 0} {
		r, l, _ := answersTo(t)
		r.tap = func(bool, int, []byte) bool { return false }
		r.do(func(ctx *pipeline.Ctx) {
			for range 3 {
				l.hold(ctx, heldRequest(l, wire.RCSendOnly), 1)
			}
			filler := heldRequest(l, wire.RCSendOnly)
			for ctx.EmitsLeft() > spare {
				ctx.Emit(&filler.Frame, "")
			}
			released := r.m.stats.Released
			r.m.kick = false
			l.release(ctx)
			if l.waits.held.n != want || r.m.kick != (want > 0) || r.m.stats.Released-released != uint64(3-want) {
				t.Errorf("%d packets to spare: %d of 3 held, %d released, to be continued: %v", spare, l.waits.held.n, r.m.stats.Released-released, r.m.kick)
			}
			if (r.m.due.Len() == 0) != (want == 0) {
				t.Errorf("%d packets to spare: %d deadlines", spare, r.m.due.Len())
			}
		})
		for range 3 {
			r.do(func(*pipeline.Ctx) {})
		}
		if l.waits.held.n != 0 || r.m.due.Len() != 0 {
			t.Errorf("%d packets to spare: %d held in the end, %d deadlines", spare, l.waits.held.n, r.m.due.Len())
		}
	}
}

// Packets that are no requests of a connection pass. A flow of another generation has another
// sequencer. A request that passes without a sequencer moves the expected PSN, if it is new.
func TestRequestsOfOtherFlows(t *testing.T) {
	for name, c := range map[string]struct {
		op     wire.Opcode
		change func(r *rig, l *sequencer)
		class  conntrack.Class
		same   bool
		next   int
		want   int // how far the expected PSN moves
	}{
		"next":                    {wire.RCSendOnly, func(*rig, *sequencer) {}, conntrack.New, true, 1, 1},
		"of a datagram":           {wire.UDSendOnly, func(*rig, *sequencer) {}, conntrack.New, true, 0, 0},
		"unreliable":              {wire.UCSendOnly, func(*rig, *sequencer) {}, conntrack.New, true, 0, 0},
		"another generation":      {wire.RCSendOnly, func(_ *rig, l *sequencer) { l.flow.Generation++ }, conntrack.New, false, 0, 1},
		"closed":                  {wire.RCSendOnly, func(_ *rig, l *sequencer) { l.phase = closed }, conntrack.New, false, 0, 1},
		"closed, no rules":        {wire.RCSendOnly, func(r *rig, l *sequencer) { l.phase = closed; r.useRules() }, conntrack.New, true, 0, 1},
		"closed, no rules, again": {wire.RCSendOnly, func(r *rig, l *sequencer) { l.phase = closed; r.useRules() }, conntrack.Duplicate, true, 0, 0},
		"no rules":                {wire.RCSendOnly, func(r *rig, _ *sequencer) { r.useRules() }, conntrack.New, true, 1, 1},
		"no requests move":        {wire.RCSendOnly, func(_ *rig, l *sequencer) { l.phase = closed; l.s.moves = false }, conntrack.New, true, 0, 1},
	} {
		r, l, _ := answersTo(t)
		flow, next, expected := l.flow, l.next, l.flow.Expected
		p := heldRequest(l, c.op)
		c.change(r, l)
		r.do(func(ctx *pipeline.Ctx) {
			v := r.m.Request(ctx, conntrack.Seen{Flow: flow, Class: c.class, Span: 1}, nil, p)
			if v.Action != pipeline.ActForward && v.Action != pipeline.ActRewrite {
				t.Errorf("%s: %+v", name, v)
			}
		})
		if (flow.Ext == l) != c.same || l.next != next.Add(c.next) || flow.Expected != expected.Add(c.want) {
			t.Errorf("%s: same sequencer %v, next %v behind %v, expected %v behind %v", name, flow.Ext == l, l.next, next, flow.Expected, expected)
		}
		if l.phase == closed {
			l.phase = synced
		}
	}
}
