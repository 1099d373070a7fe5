package serialize

import (
	"testing"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
)

// knownWord makes the word at 64 known under the server's key, with the value 5.
func knownWord(r *rig, now clock.Time) *atomiccache.Word {
	w := r.m.words.Get(now, atomiccache.Key{VA: r.server.base + 64})
	w.Answered(now, w.Decide(now, 0, r.server.key, wire.RCFetchAdd, 0, 0), 0)
	w.Answered(now, w.Decide(now, now+1, r.server.key, wire.RCFetchAdd, 0, 0), 5)
	return w
}

// Where a request on one word goes depends on the word, its key, the rules and what of its flow is
// in flight.
func TestRequestsOnAWord(t *testing.T) {
	for name, c := range map[string]struct {
		op     wire.Opcode
		change func(r *rig, g *placing, w *atomiccache.Word)
		want   string
		state  atomiccache.State
		kind   atomiccache.Kind // of the record, if it went to the shared connection
	}{
		"FETCH_ADD":        {wire.RCFetchAdd, nil, "shared, at once", atomiccache.Known, atomiccache.Write},
		"CAS that fails":   {wire.RCCmpSwap, func(_ *rig, g *placing, _ *atomiccache.Word) { g.f.AtomicETH.Compare = 6 }, "shared, at once", atomiccache.Known, atomiccache.EmptyWrite},
		"unknown value":    {wire.RCFetchAdd, func(_ *rig, _ *placing, w *atomiccache.Word) { w.Forget() }, "shared, at once", atomiccache.Unknown, atomiccache.Shared},
		"WRITE":            {wire.RCWriteOnly, nil, "shared, at once", atomiccache.Known, atomiccache.Shared},
		"another key":      {wire.RCFetchAdd, func(_ *rig, g *placing, _ *atomiccache.Word) { g.f.AtomicETH.RKey++ }, "own", atomiccache.Busy, 0},
		"banned key":       {wire.RCFetchAdd, func(r *rig, g *placing, _ *atomiccache.Word) { g.l.s.keys.ban(r.server.key) }, "own", atomiccache.Busy, 0},
		"may not move":     {wire.RCFetchAdd, func(_ *rig, g *placing, _ *atomiccache.Word) { g.l.permit = permitDenied }, "own", atomiccache.Busy, 0},
		"of a part":        {wire.RCMaskedFetchAdd, nil, "own", atomiccache.Busy, 0},
		"ATOMIC_WRITE":     {wire.RCAtomicWrite, nil, "own", atomiccache.Busy, 0},
		"no rule any more": {wire.RCFetchAdd, func(_ *rig, g *placing, _ *atomiccache.Word) { g.l.s.rules = nil }, "own", atomiccache.Pass, 0},
		"own in flight": {wire.RCFetchAdd, func(_ *rig, g *placing, _ *atomiccache.Word) {
			g.l.place, g.l.conn.acked = placeOwn, g.l.conn.acked.Add(-1)
		}, "waits", atomiccache.Known, 0},
		"shared in flight":            {wire.RCFetchAdd, func(_ *rig, g *placing, _ *atomiccache.Word) { g.l.place, g.l.out = 0, 1 }, "shared, at once", atomiccache.Known, atomiccache.Write},
		"other key, shared in flight": {wire.RCFetchAdd, func(_ *rig, g *placing, _ *atomiccache.Word) { g.f.AtomicETH.RKey++; g.l.place, g.l.out = 0, 1 }, "waits", atomiccache.Known, 0},
		"unknown value, shared in flight": {wire.RCFetchAdd, func(_ *rig, g *placing, w *atomiccache.Word) {
			w.Forget()
			g.l.place, g.l.out = 0, 1
		}, "shared, at once", atomiccache.Unknown, atomiccache.Shared},
		"other key, own in flight": {wire.RCFetchAdd, func(_ *rig, g *placing, _ *atomiccache.Word) {
			g.f.AtomicETH.RKey++
			g.l.place, g.l.conn.acked = placeOwn, g.l.conn.acked.Add(-1)
		}, "own", atomiccache.Busy, 0},
		"busy, shared in flight": {wire.RCFetchAdd, func(_ *rig, g *placing, w *atomiccache.Word) { w.Foreign(g.c.Now); g.l.place, g.l.out = 0, 1 }, "waits", atomiccache.Busy, 0},
		"busy":                   {wire.RCFetchAdd, func(_ *rig, g *placing, w *atomiccache.Word) { w.Foreign(g.c.Now) }, "waits", atomiccache.Busy, 0},
		"no record":              {wire.RCFetchAdd, func(_ *rig, g *placing, _ *atomiccache.Word) { g.l.replies.window.max = 0 }, "waits", atomiccache.Known, 0},
		"no operation":           {wire.RCFetchAdd, func(_ *rig, g *placing, _ *atomiccache.Word) { g.l.conn.ops.max = 0 }, "waits", atomiccache.Known, 0},
		"in a message":           {wire.RCFetchAdd, func(_ *rig, g *placing, w *atomiccache.Word) { g.l.conn.msg = inMessage }, "waits", atomiccache.Known, 0},
	} {
		placed(t, atomicsRule(1), c.op, func(r *rig, g *placing) {
			w := knownWord(r, g.c.Now)
			if w.State != atomiccache.Known || w.Value != 5 {
				t.Fatalf("the word is %v, %d", w.State, w.Value)
			}
			if c.change != nil {
				c.change(r, g, w)
			}
			client, own, before := g.l.conn.psns.client, g.l.conn.psns.own, r.m.stats
			pending := w.ClientPending()
			got := placeOf(g, g.forWord(w))
			if got != c.want || w.State != c.state {
				t.Errorf("%s: %s, want %s; the word is %v, want %v", name, got, c.want, w.State, c.state)
			}
			rec := g.l.replies.window.find(client)
			switch {
			case got == "own":
				if op := g.l.conn.ops.newest(); op == nil || op.end != own.Add(1) || op.word != w || op.decision.Kind != atomiccache.Client || w.ClientPending() != pending+1 {
					t.Errorf("%s: %+v, the word waits for %d", name, op, w.ClientPending())
				}
			case got == "waits":
				if g.l.conn.psns.client != client || w.ClientPending() != pending || w.Pending != 0 {
					t.Errorf("%s: the word waits for %d and %d", name, w.ClientPending(), w.Pending)
				}
			case rec == nil || rec.word != w || rec.decision.Kind != c.kind || w.Pending != 1:
				t.Errorf("%s: %+v, %d in flight", name, rec, w.Pending)
			}
			s := r.m.stats
			if (s.Replaced-before.Replaced == 1) != (c.kind == atomiccache.Write) || (s.ReplacedEmpty-before.ReplacedEmpty == 1) != (c.kind == atomiccache.EmptyWrite) {
				t.Errorf("%s: %+v", name, s)
			}
			g.l.replies.window.max, g.l.conn.acked, g.l.out, g.l.conn.msg = 128, g.l.conn.psns.own, 0, between
		})
	}
}

// A word whose rule has gone is given up when nothing of it is in flight on the shared connection.
func TestWordWithoutARule(t *testing.T) {
	for _, flying := range []bool{false, true} {
		placed(t, atomicsRule(1), wire.RCFetchAdd, func(r *rig, g *placing) {
			w := knownWord(r, g.c.Now)
			if flying {
				w.Decide(g.c.Now, 0, r.server.key, wire.RCFetchAdd, 0, 1)
			}
			g.l.s.rules = nil
			epoch := w.Epoch
			g.forWord(w)
			if (w.State == atomiccache.Pass) == flying || w.Proven(r.server.key) != flying || (w.Epoch == epoch) != flying {
				t.Errorf("in flight %v: the word is %v", flying, w.State)
			}
			epoch = w.Epoch
			if !flying {
				g.forWord(w)
			}
			if w.Epoch != epoch {
				t.Error("it is given up twice")
			}
			w.Pending = 0
		})
	}
}

// A CAS that fails is answered by the switch if the rule says so and the value is certain, or waits
// for its value.
func TestMissesByTheirRule(t *testing.T) {
	for name, c := range map[string]struct {
		how    rules.Answerer
		change func(r *rig, g *placing, w *atomiccache.Word)
		want   outcome
	}{
		"server":          {rules.AnswerServer, nil, sentShared},
		"switch":          {rules.AnswerSwitch, nil, told},
		"switch, it hits": {rules.AnswerSwitch, func(_ *rig, g *placing, _ *atomiccache.Word) { g.f.AtomicETH.Compare = 5 }, sentShared},
		"wait":            {rules.AnswerWait, nil, mustWait},
		"wait, it hits":   {rules.AnswerWait, func(_ *rig, g *placing, _ *atomiccache.Word) { g.f.AtomicETH.Compare = 5 }, sentShared},
		"wait, over": {rules.AnswerWait, func(r *rig, g *placing, _ *atomiccache.Word) {
			g.arrived = false
			r.m.held.slots[g.l.waits.held.first].hurried = true
		}, told},
		"no rule": {rules.AnswerWait, func(_ *rig, g *placing, _ *atomiccache.Word) { g.l.s.rules = nil }, sentShared},
	} {
		placed(t, missRule(c.how), wire.RCCmpSwap, func(r *rig, g *placing) {
			w := knownWord(r, g.c.Now)
			g.f.AtomicETH.Compare = 6
			holding(g.c, g.l, 1)
			if c.change != nil {
				c.change(r, g, w)
			}
			client, own, before, msn, moved := g.l.conn.psns.client, g.l.conn.psns.own, r.m.stats, g.l.replies.msn, g.l.moved
			if got := g.miss(w, 0); got != c.want || (g.l.waits.awaits.word == w) != (c.want == mustWait) {
				t.Errorf("%s: %v, want %v; %+v", name, got, c.want, g.l.waits.awaits)
			}
			if a := g.l.waits.awaits; a.word != nil && (a.key != w.Key || a.rkey != r.server.key || a.compare != 6 || a.time != g.l.s.rules[0].MissPatience() || !a.stillFails(g.c.Now)) {
				t.Errorf("%s: %+v", name, a)
			}
			rec := g.l.replies.window.find(client)
			if c.want == told && (rec == nil || rec.state != done || rec.prior != 5 || rec.place != 0 || g.l.conn.psns.client != client.Add(1) || g.l.conn.psns.own != own || g.l.replies.msn != msn+1 || g.l.moved != moved+1) {
				t.Errorf("%s: %+v, next %v, MSN %d behind %d", name, rec, g.l.conn.psns.client, g.l.replies.msn, msn)
			}
			if n := r.m.stats.Told - before.Told; (n == 1) != (c.want == told) {
				t.Errorf("%s: %d told", name, n)
			}
			g.l.giveUpHeld()
		})
	}
}

// A CAS that waits for the value of a word does not go on waiting when the memory of the word is
// used for another.
func TestWaitForAWordThatHasGone(t *testing.T) {
	placed(t, missRule(rules.AnswerWait), wire.RCCmpSwap, func(r *rig, g *placing) {
		w := knownWord(r, g.c.Now)
		a := waiting{word: w, key: w.Key, rkey: r.server.key, compare: 6}
		if !a.stillFails(g.c.Now) {
			t.Error("it does not fail")
		}
		if a.key.VA += 8; a.stillFails(g.c.Now) {
			t.Error("it waits for another word")
		}
	})
}

// A WRITE that touches several words, or goes on behind its packet, stays on the client's
// connection, and all its words wait for it.
func TestWritesOverWords(t *testing.T) {
	for name, c := range map[string]struct {
		op     wire.Opcode
		change func(r *rig, g *placing, w *atomiccache.Word)
		want   string
		ops    uint32
	}{
		"a word":              {wire.RCWriteOnly, func(*rig, *placing, *atomiccache.Word) {}, "shared, at once", 0},
		"with immediate data": {wire.RCWriteOnlyImm, func(*rig, *placing, *atomiccache.Word) {}, "own", 1},
		"wrong length":        {wire.RCWriteOnly, func(_ *rig, g *placing, _ *atomiccache.Word) { g.f.RETH.Length = 7 }, "own", 1},
		"two words": {wire.RCWriteOnly, func(r *rig, g *placing, _ *atomiccache.Word) {
			r.m.words.Get(g.c.Now, atomiccache.Key{VA: r.server.base + 72})
			g.f.RETH.Length, g.f.Payload = 16, make([]byte, 16)
		}, "own", 1},
		"no word":       {wire.RCWriteOnly, func(_ *rig, g *placing, _ *atomiccache.Word) { g.f.RETH.VA += 8 }, "own", 0},
		"no word, long": {wire.RCWriteFirst, func(_ *rig, g *placing, _ *atomiccache.Word) { g.f.RETH.VA += 8; g.f.RETH.Length = 24 }, "own", 1},
		"no word, in flight": {wire.RCWriteFirst, func(_ *rig, g *placing, _ *atomiccache.Word) {
			g.f.RETH.VA += 8
			g.f.RETH.Length = 24
			g.l.place, g.l.out = 0, 1
		}, "waits", 0},
		"a word, long": {wire.RCWriteFirst, func(_ *rig, g *placing, _ *atomiccache.Word) { g.f.RETH.Length = 24 }, "own", 1},
		"busy word, long": {wire.RCWriteFirst, func(_ *rig, g *placing, w *atomiccache.Word) {
			g.f.RETH.Length = 24
			w.Foreign(g.c.Now)
			w.State = atomiccache.Closing
			w.Pending = 1
		}, "waits", 0},
		"no operation":       {wire.RCWriteOnlyImm, func(_ *rig, g *placing, _ *atomiccache.Word) { g.l.conn.ops.max = 0 }, "waits", 0},
		"shared in flight":   {wire.RCWriteOnlyImm, func(_ *rig, g *placing, _ *atomiccache.Word) { g.l.place, g.l.out = 0, 1 }, "waits", 0},
		"words do not count": {wire.RCWriteOnly, func(_ *rig, g *placing, _ *atomiccache.Word) { g.l.s.watch = false }, "own", 0},
	} {
		placed(t, atomicsRule(1), c.op, func(r *rig, g *placing) {
			w := knownWord(r, g.c.Now)
			c.change(r, g, w)
			own := g.l.conn.psns.own
			if got := placeOf(g, g.dispatch()); got != c.want || g.l.conn.ops.tail-g.l.conn.ops.head != c.ops {
				t.Errorf("%s: %s, want %s; %d operations", name, got, c.want, g.l.conn.ops.tail-g.l.conn.ops.head)
			}
			if op := g.l.conn.ops.newest(); op != nil {
				end := own.Add(1)
				if c.op == wire.RCWriteFirst {
					end = own.Add(3)
				}
				if !op.all || op.first != own || op.end != end || op.va != g.f.RETH.VA || op.n != g.f.RETH.Length {
					t.Errorf("%s: %+v", name, op)
				}
			}
			w.Pending, g.l.conn.acked, g.l.out, g.l.conn.msg = 0, g.l.conn.psns.own, 0, between
		})
	}
}
