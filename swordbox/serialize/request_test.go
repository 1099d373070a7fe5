package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// While the expected PSN is not known, the sequencer remembers how far requests have gone, and
// takes one that is sent for the first time as a question for the proof of its connection.
func TestLooseRequestsAreFollowed(t *testing.T) {
	const own, acked = wire.PSN(100), wire.PSN(90)
	for name, c := range map[string]struct {
		phase      phase
		psn        wire.PSN
		span       int
		class      conntrack.Class
		own, acked wire.PSN
		after      phase
		asks       bool
	}{
		"first":               {untouched, 50, 1, conntrack.New, 51, 50, passing, true},
		"first of many":       {untouched, 50, 3, conntrack.New, 53, 50, passing, true},
		"first, unknown span": {untouched, 50, 0, conntrack.New, 51, 50, passing, true},
		"next":                {passing, own, 1, conntrack.New, 101, acked, passing, true},
		"behind a gap":        {passing, own + 5, 1, conntrack.New, 106, acked, passing, true},
		"again":               {passing, own - 1, 1, conntrack.Duplicate, own, acked, passing, false},
		"again, longer":       {passing, own - 1, 3, conntrack.Duplicate, 102, acked, passing, false},
		"some not seen":       {partial, 50, 1, conntrack.New, 51, 50, partialPassing, false},
		"some not seen, next": {partialPassing, own, 1, conntrack.New, 101, acked, partialPassing, true},
	} {
		r, l, _ := answersTo(t)
		l.phase, l.conn.psns.own, l.conn.acked, l.conn.proof = c.phase, own, acked, proof{}
		expected := l.flow.Expected
		r.do(func(ctx *pipeline.Ctx) {
			if v := l.looseRequest(ctx, conntrack.Seen{Class: c.class, Span: c.span}, duplicateOf(wire.RCReadRequest, c.psn)); v != pipeline.Forward() {
				t.Errorf("%s: %+v", name, v)
			}
			if l.conn.lastLoose != ctx.Now {
				t.Errorf("%s: forwarded at %v, want %v", name, l.conn.lastLoose, ctx.Now)
			}
		})
		if l.conn.psns.own != c.own || l.conn.acked != c.acked || l.phase != c.after || (l.conn.proof.asked == l.s.incarnation) != c.asks || c.asks && l.conn.proof.mark != c.psn {
			t.Errorf("%s: next %v, executed before %v, %v, %+v", name, l.conn.psns.own, l.conn.acked, l.phase, l.conn.proof)
		}
		if c.span > 0 && (l.flow.Expected == expected.Add(c.span)) != (c.class == conntrack.New) {
			t.Errorf("%s: %v is expected, before it was %v", name, l.flow.Expected, expected)
		}
	}
}

// What a request does to the words while the expected PSN is not known.
func TestLooseWritesAndTheirWords(t *testing.T) {
	write := func(op wire.Opcode, va uint64, n uint32) *wire.Frame {
		f := new(wire.Frame)
		f.BTH = wire.BTH{Opcode: op, PSN: 100}
		f.RETH, f.AtomicETH, f.Payload = wire.RETH{VA: va, Length: n}, wire.AtomicETH{VA: va}, make([]byte, min(n, 1024))
		return f
	}
	busy := func(l *sequencer, w *atomiccache.Word) { w.State = atomiccache.Busy; w.Foreign(l.m.scans.at) }
	poor := func(l *sequencer, _ *atomiccache.Word) {
		l.m.scans, l.replies.hasMSN, l.flow.HasAcked = scans{at: l.m.scans.at}, false, false
	}
	none := func(*sequencer, *atomiccache.Word) {}
	for name, c := range map[string]struct {
		f      *wire.Frame
		change func(l *sequencer, w *atomiccache.Word)
		want   bool
		ops    uint32
		words  int
	}{
		"no bytes":             {write(wire.RCWriteOnly, 64, 0), busy, true, 0, 1},
		"no word":              {write(wire.RCWriteOnly, 4096, 8), none, true, 0, 1},
		"no word, long":        {write(wire.RCWriteFirst, 4096, 2500), none, true, 1, 1},
		"a word":               {write(wire.RCWriteOnly, 64, 8), none, true, 1, 1},
		"a busy word":          {write(wire.RCWriteOnly, 64, 8), busy, false, 0, 1},
		"atomic":               {write(wire.RCFetchAdd, 64, 0), none, true, 1, 1},
		"atomic, another word": {write(wire.RCFetchAdd, 128, 0), none, true, 1, 2},
		"atomic, not aligned":  {write(wire.RCFetchAdd, 129, 0), none, true, 1, 1},
		"atomic, a busy word":  {write(wire.RCFetchAdd, 64, 0), busy, false, 0, 1},
		"no budget":            {write(wire.RCWriteOnly, 64, 8), poor, false, 0, 1},
		"no budget, atomic":    {write(wire.RCFetchAdd, 64, 0), poor, true, 1, 1},
		"no budget, proven":    {write(wire.RCWriteOnly, 64, 8), func(l *sequencer, _ *atomiccache.Word) { l.m.scans = scans{at: l.m.scans.at} }, true, 1, 1},
	} {
		r, l, _ := answersTo(t)
		r.do(func(ctx *pipeline.Ctx) {
			w := r.m.words.Get(ctx.Now, atomiccache.Key{VA: 64})
			l.phase, l.s.watch, r.m.scans.at = partial, true, ctx.Now
			l.flow = &conntrack.Flow{} // not synced
			l.replies.flow = l.flow
			l.replies.hasMSN = true
			c.change(l, w)
			before := r.m.stats
			if got := l.looseWrite(ctx.Now, c.f); got != c.want || l.conn.ops.tail != c.ops || r.m.words.Counters().Words != c.words {
				t.Errorf("%s: %v, %d operations, %d words", name, got, l.conn.ops.tail, r.m.words.Counters().Words)
			}
			if s := r.m.stats; (s.LooseDropped-before.LooseDropped)+(s.Unadmitted-before.Unadmitted) != map[bool]uint64{false: 1}[c.want] {
				t.Errorf("%s: %+v", name, s)
			}
			w.State = atomiccache.Pass
			l.flow = r.m.flows.list[0].flow
			l.replies.flow = l.flow
		})
	}
}

// Packets of a message whose first packet was not seen join one operation, and later messages do not.
func TestLoosePartsJoin(t *testing.T) {
	r, l, _ := answersTo(t)
	r.do(func(ctx *pipeline.Ctx) {
		r.m.words.Get(ctx.Now, atomiccache.Key{VA: 64})
		l.s.watch = true
		for i, op := range []wire.Opcode{wire.RCWriteMiddle, wire.RCWriteMiddle, wire.RCWriteLast} {
			f := new(wire.Frame)
			f.BTH = wire.BTH{Opcode: op, PSN: wire.PSN(100 + i)}
			if !l.looseWrite(ctx.Now, f) || l.conn.ops.tail != 1 {
				t.Errorf("packet %d: %d operations", i, l.conn.ops.tail)
			}
		}
		f := new(wire.Frame)
		f.BTH = wire.BTH{Opcode: wire.RCWriteOnly, PSN: 103}
		f.RETH = wire.RETH{VA: 64, Length: 8}
		if !l.looseWrite(ctx.Now, f) || l.conn.ops.tail != 2 {
			t.Errorf("another message: %d operations", l.conn.ops.tail)
		}
	})
}

// A request that a word cannot take is dropped, and then the sequencer has not seen all requests.
func TestLooseRequestIsDropped(t *testing.T) {
	for op, dropped := range map[wire.Opcode]bool{wire.RCWriteOnly: true, wire.RCReadRequest: false} {
		for _, watch := range []bool{true, false} {
			r, l, _ := answersTo(t)
			r.do(func(ctx *pipeline.Ctx) {
				w := r.m.words.Get(ctx.Now, atomiccache.Key{VA: 64})
				w.State = atomiccache.Busy
				w.Foreign(ctx.Now)
				l.phase, l.s.watch = passing, watch
				p := duplicateOf(op, l.conn.psns.own)
				p.RETH = wire.RETH{VA: 64, Length: 8}
				v := l.looseRequest(ctx, conntrack.Seen{Span: 1}, p)
				want := dropped && watch
				if (v.Reason == ReasonBusy) != want || (l.phase == partialPassing) != want {
					t.Errorf("%v, words count %v: %+v, %v", op, watch, v, l.phase)
				}
				w.State = atomiccache.Pass
			})
		}
	}
}

// A request behind a gap draws one sequence NAK. If the switch has refused one before for lack of
// room, or waits for the span of a READ, the NAK comes later; a refused flow gets the fatal one.
func TestRequestsBehindAGap(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(l *sequencer)
		naks    nakState
		answers int
		blocked bool
	}{
		"first":        {func(*sequencer) {}, nakSent, 1, false},
		"again":        {func(l *sequencer) { l.naks = nakSent }, nakSent, 0, false},
		"owed":         {func(l *sequencer) { l.naks = nakOwed }, nakOwed, 0, false},
		"unknown span": {func(l *sequencer) { l.conn.msg = openRead }, nakOwed, 0, true},
		"refused":      {func(l *sequencer) { l.phase, l.replies.deadPSN = refused, l.next; l.replies.deadEnd = l.next }, inOrder, 1, false},
	} {
		r, l, got := answersTo(t)
		c.change(l)
		before := r.m.stats
		r.do(func(ctx *pipeline.Ctx) {
			v := l.gap(ctx, duplicateOf(wire.RCWriteOnly, l.next.Add(3)))
			if (v.Reason == ReasonGap) != (l.phase != refused) {
				t.Errorf("%s: %+v", name, v)
			}
			if l.naks != c.naks || l.waits.blocked != c.blocked {
				t.Errorf("%s: %v, waits %v", name, l.naks, l.waits.blocked)
			}
			l.conn.msg, l.naks, l.phase = between, inOrder, synced
		})
		s := r.m.stats
		if len(*got) != c.answers || s.Gaps-before.Gaps != 1 || s.SequenceNaks-before.SequenceNaks != map[bool]uint64{true: 1}[name == "first"] {
			t.Errorf("%s: answers %v, %+v", name, *got, s)
		}
		if c.answers == 1 && (*got)[0] != l.next {
			t.Errorf("%s: a NAK of %v, want %v", name, *got, l.next)
		}
	}
}

// heldRequest is a request as it arrives, with its bytes.
func heldRequest(l *sequencer, op wire.Opcode) *pipeline.Parsed {
	p := new(pipeline.Parsed)
	p.Frame = wire.Frame{Eth: wire.Ethernet{Src: macOf(1), Dst: macOf(serverIP)}}
	p.IPv4 = wire.IPv4{Src: ipOf(1).As4(), Dst: ipOf(serverIP).As4(), TTL: 64}
	p.BTH = wire.BTH{Opcode: op, PKey: wire.DefaultPKey, DestQP: l.flow.RespQPN, PSN: l.next, AckReq: true}
	p.RETH.RKey = 1 // a request of no bytes under R_Key 0 does not move
	p.Raw = packetio.Frame{Data: p.Frame.AppendTo(nil)}
	return p
}

// A request is held if its flow and its host have room, and if the PSN of the next request is
// known. A request that may change a word ends the wait of a CAS before it.
func TestWhichRequestsAreHeld(t *testing.T) {
	for name, c := range map[string]struct {
		held, span int
		op         wire.Opcode
		kept       bool
		hurried    bool
	}{
		"first":          {0, 1, wire.RCReadRequest, true, false},
		"first, long":    {0, 4, wire.RCReadRequest, true, false},
		"second":         {1, 1, wire.RCReadRequest, true, false},
		"second, WRITE":  {1, 1, wire.RCWriteOnly, true, true},
		"second, atomic": {1, 1, wire.RCFetchAdd, true, true},
		"last":           {2, 1, wire.RCReadRequest, true, false},
		"one too many":   {3, 1, wire.RCReadRequest, false, false},
		"unknown span":   {0, 0, wire.RCReadRequest, false, false},
	} {
		r, l, _ := answersTo(t)
		r.m.cfg.HeldPerFlow = 3
		r.do(func(ctx *pipeline.Ctx) {
			holding(ctx, l, c.held)
			l.waits.heard.sentAt, l.waits.heard.first = 0, 0
			l.waits.blocked, r.m.blocked.list = false, nil
			w := r.m.words.Get(ctx.Now, atomiccache.Key{VA: 64})
			l.waits.awaits = waiting{word: w, time: time.Hour}
			r.m.kick = false
			next, before := l.next, r.m.stats
			v := l.hold(ctx, heldRequest(l, c.op), c.span)
			want, n := pipeline.Consume(), c.held+1
			if !c.kept {
				want, n = pipeline.Drop(ReasonHeldFull), c.held
			}
			if v != want || l.waits.held.n != n || l.next != next.Add(map[bool]int{true: c.span}[c.kept]) || !l.waits.blocked || (l.naks == nakOwed) == c.kept {
				t.Errorf("%s: %+v, %d held, next %v behind %v, %v", name, v, l.waits.held.n, l.next, next, l.naks)
			}
			if s := r.m.stats; (s.Held-before.Held == 1) != c.kept || (s.HeldFull-before.HeldFull == 1) == c.kept {
				t.Errorf("%s: %+v", name, s)
			}
			if (l.waits.awaits.word == nil) != c.hurried || r.m.kick != c.hurried {
				t.Errorf("%s: the CAS waits %v, held requests are looked at %v", name, l.waits.awaits.word != nil, r.m.kick)
			}
			if first := c.held == 0 && c.kept; (l.waits.heard.first == next && l.waits.heard.sentAt == ctx.Now) != first || (r.m.due.Len() == 1) != first {
				t.Errorf("%s: %+v, %d deadlines", name, l.waits.heard, r.m.due.Len())
			}
			l.giveUpHeld()
			l.naks = inOrder
		})
	}
}

// The NAK that is owed is sent when nothing of the flow is held or in flight and there is room, and
// not to a refused flow. In the middle of a message it is sent although the message is in flight.
func TestOwedNakIsSent(t *testing.T) {
	for name, c := range map[string]struct {
		change       func(ctx *pipeline.Ctx, l *sequencer)
		sent, wanted bool
	}{
		"idle":         {func(*pipeline.Ctx, *sequencer) {}, true, false},
		"not owed":     {func(_ *pipeline.Ctx, l *sequencer) { l.naks = inOrder }, false, false},
		"in flight":    {func(_ *pipeline.Ctx, l *sequencer) { l.conn.acked = l.conn.acked.Add(-1) }, false, false},
		"in a message": {func(_ *pipeline.Ctx, l *sequencer) { l.conn.acked = l.conn.acked.Add(-1); l.conn.msg = inMessage }, true, false},
		"refused":      {func(_ *pipeline.Ctx, l *sequencer) { l.phase = refused }, false, false},
		"no room":      {func(_ *pipeline.Ctx, l *sequencer) { l.m.held.fill(l.flow.Port) }, false, true},
	} {
		r, l, _ := answersTo(t)
		r.do(func(ctx *pipeline.Ctx) {
			l.naks = nakOwed
			c.change(ctx, l)
			before := r.m.stats.SequenceNaks
			l.release(ctx)
			if sent := r.m.stats.SequenceNaks == before+1; sent != c.sent || r.m.held.wanted != c.wanted || c.sent && l.naks != nakSent || c.wanted && l.naks != nakOwed {
				t.Errorf("%s: sent %v, waits for room %v, %v", name, sent, r.m.held.wanted, l.naks)
			}
			l.naks, l.phase, l.conn.msg, l.conn.acked = inOrder, synced, between, l.conn.psns.own
		})
	}
}
