package serialize

import (
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// inFlightOn gives a sequencer one moved request, with this PSN and opcode, that its server has not
// answered.
func inFlightOn(l *sequencer, psn wire.PSN, op wire.Opcode) *record {
	l.replies.window = window{max: 8}
	r := l.replies.window.add(psn, op)
	r.span, r.ackReq = 1, true
	l.place, l.out = 0, 1
	return r
}

// The end of a request on the shared connection is told to its client, unless the flow has ended or
// was refused; requests behind a refused one are taken back. The sequencer of a closed flow goes
// with its last request.
func TestEndsOfMovedRequests(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(l *sequencer, r *record, tag *requester.Tag)
		kind     requester.Kind
		out      int
		answers  int
		taken    uint64
		orphans  uint64
		released bool
	}{
		"acknowledged":           {kind: requester.Acked, answers: 1},
		"of no sequencer":        {func(_ *sequencer, _ *record, tag *requester.Tag) { tag.Generation++ }, requester.Acked, 1, 0, 0, 1, false},
		"returned":               {kind: requester.Returned, answers: 1, taken: 1}, // the answer is a sequence NAK
		"returned, refused":      {func(l *sequencer, _ *record, _ *requester.Tag) { l.phase = refused }, requester.Returned, 0, 0, 0, 0, false},
		"returned, closed":       {func(l *sequencer, _ *record, _ *requester.Tag) { l.phase = closed }, requester.Returned, 0, 0, 0, 0, true},
		"acknowledged, refused":  {func(l *sequencer, _ *record, _ *requester.Tag) { l.phase = refused }, requester.Acked, 0, 0, 0, 0, false},
		"the last one, closed":   {func(l *sequencer, _ *record, _ *requester.Tag) { l.phase = closed }, requester.Acked, 0, 0, 0, 0, true},
		"another one, closed":    {func(l *sequencer, _ *record, _ *requester.Tag) { l.phase, l.out = closed, 2 }, requester.Acked, 1, 0, 0, 0, false},
		"answered already":       {func(_ *sequencer, r *record, _ *requester.Tag) { r.state = done }, requester.Acked, 1, 0, 0, 0, false},
		"of no request any more": {func(_ *sequencer, _ *record, tag *requester.Tag) { tag.PSN++ }, requester.Acked, 1, 0, 0, 0, false},
	} {
		r, l, got := answersTo(t)
		rec := inFlightOn(l, l.conn.psns.client.Add(-1), wire.RCWriteOnly)
		k, tag := r.m.servers[0].links[0], l.tag(rec.psn)
		if c.change != nil {
			c.change(l, rec, &tag)
		}
		before, msn := r.m.stats, l.replies.msn
		r.do(func(ctx *pipeline.Ctx) {
			r.m.kick = false
			if k.Done(ctx, tag, requester.Answer{Kind: c.kind}); !r.m.kick {
				t.Errorf("%s: held requests are not looked at", name)
			}
		})
		if len(*got) != c.answers || l.out != c.out || (l.replies.msn != msn) != (c.answers == 1 && c.taken == 0) {
			t.Errorf("%s: the client gets answers to %v, %d in flight, MSN %d", name, *got, l.out, l.replies.msn)
		}
		if s := r.m.stats; s.TakenBack-before.TakenBack != c.taken || s.Orphans-before.Orphans != c.orphans || s.SequenceNaks-before.SequenceNaks != c.taken {
			t.Errorf("%s: %+v", name, s)
		}
		if free := slices.Contains(r.m.flows.free, l.index); free != c.released {
			t.Errorf("%s: the sequencer has gone: %v", name, free)
		}
		if !r.m.step.from.Made {
			t.Errorf("%s: later answers are described as caused by this one", name)
		}
	}
}

// What the end of a request says about its word and its key.
func TestEndsOfRequestsOnWords(t *testing.T) {
	for name, c := range map[string]struct {
		kind   requester.Kind
		op     wire.Opcode
		prior  uint64
		state  atomiccache.State
		banned bool
	}{
		"acknowledged": {requester.Acked, wire.RCFetchAdd, 40, atomiccache.Known, false},
		"a WRITE":      {requester.Acked, wire.RCWriteOnly, 77, atomiccache.Known, false},
		"a value":      {requester.Atomic, wire.RCFetchAdd, 77, atomiccache.Known, false},
		"refused":      {requester.Refused, wire.RCFetchAdd, 77, atomiccache.Unknown, true},
		"lost":         {requester.Lost, wire.RCFetchAdd, 77, atomiccache.Pass, false},
		"returned":     {requester.Returned, wire.RCFetchAdd, 77, atomiccache.Unknown, false},
	} {
		for _, withWord := range []bool{true, false} {
			r, _ := known(t, rigConfig{clients: 1})
			k := r.m.servers[0].links[0]
			w := r.m.words.Lookup(atomiccache.Key{VA: r.server.base + 64})
			rec := &record{asked: asked{op: c.op, rkey: r.server.key}}
			if withWord {
				rec.word, rec.decision = w, w.Decide(r.now, 0, r.server.key, wire.RCFetchAdd, 0, 1)
				rec.decision.Prior = 40
			}
			r.do(func(ctx *pipeline.Ctx) { k.endWord(ctx, rec, requester.Answer{Kind: c.kind, Prior: 77}) })
			want := c.state
			if !withWord {
				want = atomiccache.Known
			}
			prior := c.prior
			if !withWord && prior == 40 {
				prior = 0
			}
			if rec.prior != prior || w.State != want || w.Pending != 0 || rec.word != nil || k.s.keys.isBanned(r.server.key) != c.banned {
				t.Errorf("%s, word %v: value %d, word %v with %d in flight, banned %v", name, withWord, rec.prior, w.State, w.Pending, k.s.keys.isBanned(r.server.key))
			}
			if withWord && w.Literal != (c.kind == requester.Refused) || withWord && w.Proven(r.server.key) != (c.kind != requester.Lost) {
				t.Errorf("%s: literal %v, proven %v", name, w.Literal, w.Proven(r.server.key))
			}
		}
	}
}

// The answers that a client gets to requests on the shared connection.
func TestAnswersToMovedRequests(t *testing.T) {
	for name, c := range map[string]struct {
		op       wire.Opcode
		ackReq   bool
		redoing  bool
		answer   requester.Answer
		want     wire.Opcode // 0: no answer
		syndrome wire.Syndrome
		msn      uint32
	}{
		"WRITE":                   {wire.RCWriteOnly, true, false, requester.Answer{Kind: requester.Acked}, wire.RCAck, wire.AckNoCredits, 1},
		"without acknowledgement": {wire.RCWriteOnly, false, false, requester.Answer{Kind: requester.Acked}, 0, 0, 1},
		"atomic":                  {wire.RCFetchAdd, false, false, requester.Answer{Kind: requester.Atomic}, wire.RCAtomicAck, wire.AckNoCredits, 1},
		"behind a READ":           {wire.RCFetchAdd, false, true, requester.Answer{Kind: requester.Atomic}, 0, 0, 1},
		"READ":                    {wire.RCReadRequest, false, false, requester.Answer{Kind: requester.Read}, wire.RCReadResponseOnly, wire.AckNoCredits, 1},
		"refused":                 {wire.RCWriteOnly, true, false, requester.Answer{Kind: requester.Refused, Syndrome: wire.NakRemoteAccess}, wire.RCAck, wire.NakRemoteAccess, 0},
		"lost":                    {wire.RCWriteOnly, true, false, requester.Answer{Kind: requester.Lost}, wire.RCAck, wire.NakRemoteOp, 0},
	} {
		r, l, _ := answersTo(t)
		var got []wire.Frame
		r.tap = func(up bool, port int, data []byte) bool {
			if !up && port == 0 {
				got = append(got, parse(data))
			}
			return true
		}
		l.replies.window = window{max: 8}
		if c.redoing {
			read := l.replies.window.add(90, wire.RCReadRequest)
			l.replies.window.finish(read)
			l.replies.window.follow(read, evRedo)
		}
		rec := l.replies.window.add(100, c.op)
		rec.span, rec.ackReq = 1, c.ackReq
		l.replies.window.finish(rec)
		msn := l.replies.msn
		if c.answer.Kind == requester.Read {
			c.answer.Frame = new(wire.Frame)
			c.answer.Frame.BTH.Opcode, c.answer.Frame.AETH.Syndrome = wire.RCReadResponseOnly, wire.AckNoCredits
		}
		r.do(func(ctx *pipeline.Ctx) { l.deliver(ctx, rec, c.answer) })
		switch {
		case (c.want == 0) != (len(got) == 0):
			t.Errorf("%s: %d answers", name, len(got))
		case c.want != 0 && (got[0].BTH.Opcode != c.want || got[0].BTH.PSN != 100 || got[0].AETH.Syndrome != c.syndrome || got[0].AETH.MSN != msn+c.msn):
			t.Errorf("%s: %v, MSN was %d", name, &got[0], msn)
		}
		if l.replies.msn != msn+c.msn || (rec.state == owed) != c.redoing || (l.phase == refused) != (c.msn == 0) || c.msn == 0 && l.replies.fatal != c.syndrome {
			t.Errorf("%s: MSN %d behind %d, record %v, phase %v", name, l.replies.msn, msn, rec.state, l.phase)
		}
	}
}

// A failed shared connection is reported, and only the values of its own words are not known any more.
func TestFailureIsReported(t *testing.T) {
	r, _ := known(t, rigConfig{clients: 1})
	var failed []switchconn.Key
	r.m.cfg.Failed = func(_ *pipeline.Ctx, key switchconn.Key, generation uint32, why string) {
		if failed = append(failed, key); generation != r.gen || why != "test" {
			t.Errorf("generation %d, %s", generation, why)
		}
	}
	k, s := r.m.servers[0].links[0], r.m.servers[0]
	w := r.m.words.Lookup(atomiccache.Key{VA: r.server.base + 64})
	for name, c := range map[string]struct {
		of   *link
		want atomiccache.State
	}{
		"another server": {&link{s: &server{m: r.m, index: 1, shards: 1}}, atomiccache.Known},
		"another shard":  {&link{s: s, shard: 1}, atomiccache.Known},
	} {
		if c.of.forget(); w.State != c.want || !c.of.s.unsettled {
			t.Errorf("%s: the word is %v", name, w.State)
		}
	}
	r.do(func(ctx *pipeline.Ctx) {
		r.m.kick = false
		if k.Failed(ctx, "test"); !r.m.kick || w.State != atomiccache.Unknown {
			t.Errorf("held requests are looked at: %v; the word is %v", r.m.kick, w.State)
		}
	})
	if !slices.Equal(failed, []switchconn.Key{{Server: ipOf(serverIP)}}) {
		t.Errorf("%v", failed)
	}
	other := &link{s: s, ownQPN: 0x7777}
	r.m.byQPN[other.ownQPN] = k
	if r.do(func(ctx *pipeline.Ctx) {
		r.m.cfg.Failed = func(*pipeline.Ctx, switchconn.Key, uint32, string) {}
		other.Failed(ctx, "")
	}); r.m.byQPN[other.ownQPN] != k {
		t.Error("the queue pair of another connection is forgotten")
	}
}

// A capture names the original operation of a request on the shared connection, and the values of
// an atomic that was replaced.
func TestDescriptionOfAMovedRequest(t *testing.T) {
	r, l, _ := answersTo(t)
	k := r.m.servers[0].links[0]
	var word atomiccache.Word
	for name, c := range map[string]struct {
		op   wire.Opcode
		kind atomiccache.Kind
		word *atomiccache.Word
		to   wire.Opcode
		show transform.Show
	}{
		"replaced":        {wire.RCFetchAdd, atomiccache.Write, &word, wire.RCWriteOnly, transform.ShowPrior | transform.ShowValue},
		"changes nothing": {wire.RCCmpSwap, atomiccache.EmptyWrite, &word, wire.RCWriteOnly, transform.ShowPrior},
		"unchanged":       {wire.RCFetchAdd, atomiccache.Shared, &word, wire.RCFetchAdd, 0},
		"a WRITE":         {wire.RCWriteOnly, atomiccache.Shared, &word, wire.RCWriteOnly, 0},
		"without a word":  {wire.RCFetchAdd, atomiccache.Write, nil, wire.RCWriteOnly, 0},
	} {
		rec := inFlightOn(l, 100, c.op)
		rec.word, rec.decision = c.word, atomiccache.Decision{Kind: c.kind, Prior: 5, Value: 6}
		n := transform.Note{From: c.to, To: c.to}
		k.Describe(l.tag(100), &n)
		want := transform.Note{From: c.op, To: c.to, QPN: l.flow.RespQPN, Show: c.show}
		if c.show&transform.ShowPrior != 0 {
			want.Prior = 5
		}
		if c.show&transform.ShowValue != 0 {
			want.Value = 6
		}
		if n != want {
			t.Errorf("%s: %+v, want %+v", name, n, want)
		}
	}
	n := transform.Note{From: wire.RCWriteOnly}
	if k.Describe(l.tag(200), &n); n != (transform.Note{From: wire.RCWriteOnly, QPN: l.flow.RespQPN}) {
		t.Errorf("a request without a record: %+v", n)
	}
}
