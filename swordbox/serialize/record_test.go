package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
)

// withRecord returns a sequencer whose window has one request in flight on the client's connection.
func withRecord(op wire.Opcode, psn wire.PSN, span int) (*sequencer, *record) {
	l := &sequencer{m: &Machine{}}
	l.replies.window.max = 8
	r := l.replies.window.add(psn, op)
	r.span, r.place = span, placeOwn
	return l, r
}

// What a response on the client's connection says about the request that it answers: a READ of three packets
// is answered by its last one, an atomic by the original value; FLUSH and ATOMIC_WRITE by an empty response
// to a READ. A response that does not fit the request says nothing.
func TestResponsesToRecords(t *testing.T) {
	const psn = wire.PSN(0xffffff) // the PSNs of the READ wrap
	for _, tc := range []struct {
		request, response wire.Opcode
		at                int // packet of the request
		done              bool
		got               int
	}{
		{wire.RCReadRequest, wire.RCReadResponseFirst, 0, false, 1},
		{wire.RCReadRequest, wire.RCReadResponseMiddle, 1, false, 2},
		{wire.RCReadRequest, wire.RCReadResponseLast, 2, true, 0},
		{wire.RCReadRequest, wire.RCAtomicAck, 0, false, 0},
		{wire.RCReadRequest, wire.RCAtomicAck, 2, false, 0},
		{wire.RCReadRequest, wire.RCAck, 2, false, 0},
		{wire.RCReadRequest, wire.RCReadResponseLast, 3, false, 0}, // of no request
		{wire.RCCmpSwap, wire.RCAtomicAck, 0, true, 0},
		{wire.RCFetchAdd, wire.RCAtomicAck, 0, true, 0},
		{wire.RCCmpSwap, wire.RCReadResponseOnly, 0, false, 0},
		{wire.RCAtomicWrite, wire.RCReadResponseOnly, 0, true, 0},
		{wire.RCAtomicWrite, wire.RCAtomicAck, 0, false, 0},
		{wire.RCFlush, wire.RCReadResponseOnly, 0, true, 0},
		{wire.RCFlush, wire.RCReadResponseFirst, 0, false, 0},
		{wire.RCFlush, wire.RCAtomicAck, 0, false, 0},
	} {
		span := 1
		if tc.request == wire.RCReadRequest {
			span = 3
		}
		l, r := withRecord(tc.request, psn, span)
		p := new(pipeline.Parsed)
		p.BTH.Opcode, p.AtomicAck = tc.response, 77
		if l.note(p, psn.Add(tc.at)) {
			t.Errorf("%+v: no READ was executed again", tc)
		}
		if (r.state == done) != tc.done || r.got != tc.got || (r.prior == 77) != (tc.done && tc.response == wire.RCAtomicAck) {
			t.Errorf("%+v: state %v, %d packets, value %d", tc, r.state, r.got, r.prior)
		}
	}
	l, r := withRecord(wire.RCReadRequest, psn, 1)
	r.place = 0 // on a shared connection
	p := new(pipeline.Parsed)
	p.BTH.Opcode = wire.RCReadResponseOnly
	if l.note(p, psn); r.state != inFlight {
		t.Error("a response on the client's connection answers a moved request")
	}
	// The last packet of a READ that is executed again ends that.
	l, r = withRecord(wire.RCReadRequest, psn, 3)
	l.replies.window.finish(r)
	l.replies.window.follow(r, evRedo)
	for at, want := range map[int]bool{0: false, 1: false, 2: true} {
		if l.note(p, psn.Add(at)) != want {
			t.Errorf("packet %d of a READ that is executed again ends it: %v", at, !want)
		}
	}
	l.replies.window.follow(r, evRedone)
	if l.note(p, psn.Add(2)) {
		t.Error("the READ is not executed again any more")
	}
}

// A READ that is executed again has a response; one that is not stays as it is, and so does the window when
// it does not know the request any more.
func TestEndOfARepeatedRead(t *testing.T) {
	r := newRig(t, rigConfig{clients: 1, rules: moveRule(1)})
	c := r.connect(0)
	c.one(c.write(64, 0, 8))
	l := r.sequencerOf(c)
	w := &l.replies.window
	last := w.at(w.tail - 1)
	w.follow(last, evOwe)
	r.do(func(ctx *pipeline.Ctx) {
		l.endRedo(ctx, last.psn.Add(5)) // of no request
		if w.redos != 0 {
			t.Errorf("%d READs are executed again", w.redos)
		}
	})
	if last.state != done || w.owed != 0 {
		t.Errorf("the answer that was owed: %v, %d are owed", last.state, w.owed)
	}
	for state, want := range map[recordState]recordState{redoing: done, redoingMoved: done, redoneLate: redoneLate, inFlight: inFlight} {
		w.count(last.state, -1)
		last.state = state
		w.count(state, 1)
		r.do(func(ctx *pipeline.Ctx) { l.endRedo(ctx, last.psn) })
		if last.state != want || w.redos != 0 {
			t.Errorf("%v becomes %v, want %v; %d READs are executed again", state, last.state, want, w.redos)
		}
	}
}

// A duplicate asks for what the first request asked for. A READ may ask for a part.
func TestWhatADuplicateMustRepeat(t *testing.T) {
	frame := func(op wire.Opcode, va uint64, rkey, n uint32) *wire.Frame {
		f := new(wire.Frame)
		f.BTH.Opcode, f.RETH = op, wire.RETH{VA: va, RKey: rkey, Length: n}
		f.AtomicETH = wire.AtomicETH{VA: va, RKey: rkey, SwapOrAdd: 5, Compare: 6}
		return f
	}
	read := record{asked: asked{op: wire.RCReadRequest, va: 1000, rkey: 7, length: 100}}
	cas := record{asked: asked{op: wire.RCCmpSwap, va: 1000, rkey: 7, compare: 6, operand: 5}}
	if f := frame(wire.RCCmpSwap, 1000, 7, 0); cas.length == 0 {
		_, cas.length, _ = target(f)
	}
	for _, tc := range []struct {
		what string
		r    *record
		f    *wire.Frame
		want bool
	}{
		{"the READ", &read, frame(wire.RCReadRequest, 1000, 7, 100), true},
		{"its second half", &read, frame(wire.RCReadRequest, 1050, 7, 50), true},
		{"its end", &read, frame(wire.RCReadRequest, 1100, 7, 0), true},
		{"behind its end", &read, frame(wire.RCReadRequest, 1101, 7, 1), false},
		{"before it", &read, frame(wire.RCReadRequest, 999, 7, 10), false},
		{"a longer one", &read, frame(wire.RCReadRequest, 1000, 7, 101), false},
		{"another key", &read, frame(wire.RCReadRequest, 1000, 8, 100), false},
		{"another opcode", &read, frame(wire.RCWriteOnly, 1000, 7, 100), false},
		{"the atomic", &cas, frame(wire.RCCmpSwap, 1000, 7, 0), true},
		{"an atomic elsewhere", &cas, frame(wire.RCCmpSwap, 1008, 7, 0), false},
		{"FETCH_ADD instead", &cas, frame(wire.RCFetchAdd, 1000, 7, 0), false},
	} {
		if got := tc.r.isSame(tc.f); got != tc.want {
			t.Errorf("%s: %v", tc.what, got)
		}
	}
	for what, change := range map[string]func(f *wire.Frame){
		"compare": func(f *wire.Frame) { f.AtomicETH.Compare++ }, "operand": func(f *wire.Frame) { f.AtomicETH.SwapOrAdd++ },
	} {
		f := frame(wire.RCCmpSwap, 1000, 7, 0)
		if change(f); cas.isSame(f) {
			t.Errorf("an atomic with another %s is a duplicate", what)
		}
	}
}

// When the expected PSN of the server is certainly that of a request: all requests before it have been
// answered, or the sequencer has seen all of them and this one is new.
func TestWhenASequencerCanStart(t *testing.T) {
	const next = wire.PSN(100) // behind the newest request that was forwarded
	for _, tc := range []struct {
		what  string
		phase phase
		psn   wire.PSN
		alone bool
		want  bool
	}{
		{"first request", untouched, next, false, true},
		{"nothing in flight", partialPassing, next, true, true},
		{"nothing in flight, none forwarded", partial, next, true, true},
		{"all seen, a new one", passing, next, false, true},
		{"all seen, behind a gap", passing, next + 1, false, true},
		{"all seen, an earlier one", passing, next - 1, false, false},
		{"some not seen", partial, next, false, false},
		{"some not seen, some forwarded", partialPassing, next, false, false},
	} {
		l := &sequencer{phase: tc.phase}
		l.flow = new(conntrack.Flow)
		l.flow.ReqQPN, l.flow.HasPath = 5, true
		l.conn.psns.own = next
		s := conntrack.Seen{Class: conntrack.New, Span: 1, Alone: tc.alone}
		if got := l.canStart(s, tc.psn); got != tc.want {
			t.Errorf("%s: %v", tc.what, got)
		}
		for what, change := range map[string]func(){
			"a duplicate": func() { s.Class = conntrack.Duplicate }, "an unknown span": func() { s.Span = 0 },
			"an unknown queue pair": func() { l.flow.ReqQPN = 0 }, "an unknown path": func() { l.flow.HasPath = false },
		} {
			was, flow := s, *l.flow
			if change(); l.canStart(s, tc.psn) {
				t.Errorf("%s, %s: it can start", tc.what, what)
			}
			s, *l.flow = was, flow
		}
	}
}

// Sequencers in use have different indexes, and a request of one that has ended is not taken for a request of
// the one that got its index.
func TestIndexesOfSequencers(t *testing.T) {
	var table flowTable
	var list []*sequencer
	add := func() {
		l := new(sequencer)
		table.add(l)
		list = append(list, l)
	}
	for range 5 {
		add()
	}
	tags := []requester.Tag{list[1].tag(7), list[3].tag(7)}
	table.remove(list[1])
	table.remove(list[3])
	for _, tag := range tags {
		if table.byTag(tag) != nil {
			t.Error("a sequencer that has ended is found")
		}
	}
	list = []*sequencer{list[0], list[2], list[4]}
	for range 4 {
		add()
	}
	if len(table.list) != 7 || len(table.free) != 0 {
		t.Errorf("7 sequencers have %d indexes", len(table.list))
	}
	for _, l := range list {
		if table.byTag(l.tag(1)) != l {
			t.Errorf("the sequencer with index %d is not found", l.index)
		}
	}
	for _, tag := range append(tags, requester.Tag{Flow: 7}) {
		if table.byTag(tag) != nil {
			t.Error("another sequencer is found")
		}
	}
}

// One host alone can hold its reserve and twice as many common places as it leaves free, to the place, and
// its limit says so.
func TestPlacesOfOneHost(t *testing.T) {
	for _, tc := range []struct{ most, ports, reserve, want int }{{16, 1, 2, 10}, {1024, 8, 28, 543}, {3, 4, 0, 2}, {64, 3, 4, 36}} {
		s := newShares(tc.most)
		s.fit(tc.ports)
		if s.reserve != tc.reserve || s.limit(0) != tc.want {
			t.Errorf("%+v: reserve %d, limit %d", tc, s.reserve, s.limit(0))
		}
		if n := s.fill(0); n != tc.want || s.limit(0) != n || s.hosts[1].peak != n || s.inUse != n {
			t.Errorf("%+v: it holds %d, its limit is %d, peak %d", tc, n, s.limit(0), s.hosts[1].peak)
		}
		for range tc.want {
			s.giveBack(0)
		}
		if s.inUse != 0 || s.taken != 0 || s.hosts[1].peak != tc.want {
			t.Errorf("%+v: %d in use, %d common ones, peak %d", tc, s.inUse, s.taken, s.hosts[1].peak)
		}
	}
}

// A run of many requests in one place is remembered as far back as the map looks, and no further: each PSN
// is still at its place.
func TestLongRunsInThePSNMap(t *testing.T) {
	for _, moved := range []bool{false, true} {
		var m psnMap
		m.start(10, 8)
		m.add(1, !moved)
		for range 10 {
			m.add(maxBehind/4, moved)
		}
		newest := m.client.Add(-1)
		for back, known := range map[int]bool{0: true, maxBehind - 2: true, maxBehind + 1: false} {
			at, own := m.find(newest.Add(-back))
			want := whereOwn
			if moved {
				want = whereMoved
			}
			if known != (at == want) || known && !moved && own != m.own.Add(-1-back) || !known && at != whereOld {
				t.Errorf("moved %v, %d PSNs back: %v, PSN %v of %v", moved, back, at, own, m.own)
			}
		}
	}
}

// A shared connection that has failed is shown as long as rules ask for it, and one that rules do not ask for
// any more as long as it is up. A packet of the server to the failed one belongs to no connection.
func TestFailedConnections(t *testing.T) {
	r := newRig(t, rigConfig{clients: 1, rules: moveRule(1), manual: true, cfg: Config{Failed: nil}})
	r.connect(0)
	s := r.m.servers[0]
	k := s.links[0]
	shown := func() int { return len(r.m.Info(r.now).Shared) }
	s.shards = 0
	if shown() != 1 {
		t.Error("a connection that is up is not shown")
	}
	s.shards = 1
	own := k.ownQPN
	if r.m.byQPN[own] != k {
		t.Fatalf("%v is not the connection's queue pair", own)
	}
	s.unsettled = false
	r.do(func(ctx *pipeline.Ctx) { k.Failed(ctx, "test") })
	if r.m.byQPN[own] != nil || !s.unsettled || r.m.Stats().LinkFailures != 1 {
		t.Errorf("after a failure: %v, unsettled %v, %+v", r.m.byQPN[own], s.unsettled, r.m.Stats())
	}
	if shown() != 1 {
		t.Error("a connection that rules ask for is not shown")
	}
}

// The counters say what became of a request that the switch has held: it was released, or dropped because its
// client may have given it up.
func TestCountersOfHeldRequests(t *testing.T) {
	for _, dies := range []bool{false, true} {
		r, a, _, restore := heldRelease(t)
		before := r.m.Stats()
		a.n.dead = dies
		r.run(25 * time.Millisecond)
		restore()
		r.run(3 * time.Second)
		st := r.m.Stats()
		if dies && (st.HoldTimeouts != 1 || st.HeldDropped != 1 || st.Released != before.Released) || !dies && (st.HoldTimeouts != 0 || st.HeldDropped != 0 || st.Released != before.Released+1) {
			t.Errorf("the client dies %v: before %+v, after %+v", dies, before, st)
		}
	}
}

// An operator sees which request of a client waits on a shared connection, and as what it was sent.
func TestWaitingRequestIsShown(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 2})
	a := conns[0]
	r.tap = func(up bool, port int, _ []byte) bool { return up || port != r.server.port }
	value := r.server.word(64)
	a.post(a.cas(64, value, 7, 0))
	r.settle()
	w := r.m.Info(r.now).Shared[0].Waits
	if w == nil || w.Op != wire.RCCmpSwap.String()+"→"+wire.RCWriteOnly.String() || w.Client != ipOf(1) {
		t.Errorf("%+v", w)
	}
	k, l := r.m.servers[0].links[0], r.sequencerOf(a)
	rec := l.replies.window.oldest()
	word := rec.word
	for what, c := range map[string]struct {
		change func(tag *requester.Tag)
		want   bool
	}{
		"the atomic":             {func(*requester.Tag) {}, true},
		"of no sequencer":        {func(tag *requester.Tag) { tag.Generation++ }, false},
		"of no request":          {func(tag *requester.Tag) { tag.PSN = tag.PSN.Add(5) }, false},
		"of a closed flow":       {func(*requester.Tag) { l.phase = closed }, false},
		"of a refused flow":      {func(*requester.Tag) { l.phase = refused }, false},
		"answered already":       {func(*requester.Tag) { rec.state = done }, false},
		"of no word":             {func(*requester.Tag) { rec.word = nil }, false},
		"not sent as a WRITE":    {func(*requester.Tag) { rec.decision.Kind = atomiccache.Shared }, false},
		"sent as an empty WRITE": {func(*requester.Tag) { rec.decision.Kind = atomiccache.EmptyWrite }, true},
		"the atomic, once again": {func(*requester.Tag) {}, true},
	} {
		was, phase, tag := *rec, l.phase, l.tag(rec.psn)
		word.Literal = false
		c.change(&tag)
		if got := k.Retry(tag); got != c.want || word.Literal != c.want {
			t.Errorf("%s: retried %v, the word is not replaced any more: %v", what, got, word.Literal)
		}
		*rec, l.phase = was, phase
	}
}

// A READ is executed again for a duplicate that asks for all of it, not for one that asks for something else.
func TestRepeatedReadAsksForTheSame(t *testing.T) {
	r := newRig(t, rigConfig{clients: 1, rules: moveRule(1)})
	c := r.connect(0)
	c.one(c.write(64, 0, 8))
	l := r.sequencerOf(c)
	rec := l.replies.window.at(l.replies.window.tail - 1)
	rec.op, rec.va, rec.length, rec.place = wire.RCReadRequest, r.server.base, 64, 0
	for what, change := range map[string]func(f *wire.Frame){
		"address": func(f *wire.Frame) { f.RETH.VA += 8 }, "key": func(f *wire.Frame) { f.RETH.RKey++ }, "length": func(f *wire.Frame) { f.RETH.Length-- },
	} {
		p := new(pipeline.Parsed)
		p.BTH.Opcode, p.BTH.PSN = wire.RCReadRequest, rec.psn
		p.RETH = wire.RETH{VA: rec.va, RKey: rec.rkey, Length: rec.length}
		change(&p.Frame)
		forged := r.m.Stats().Forged
		r.do(func(ctx *pipeline.Ctx) {
			d := duplicate{l: l, c: ctx, p: p, r: rec}
			if v := d.redoMoved(); v.Reason != ReasonOther || r.m.Stats().Forged != forged+1 || rec.state != done {
				t.Errorf("another %s: %v, %v", what, v.Reason, rec.state)
			}
		})
	}
}

// When requests are taken back, their PSNs are given to the next ones, and the earlier ones stay where they are.
func TestRewoundPSNMap(t *testing.T) {
	for _, to := range []int{0, 1, 2} { // requests of the moved ones that stay
		var m psnMap
		m.start(10, 8)
		m.add(1, true)
		m.add(2, false)
		m.add(3, true)
		m.rewind(wire.PSN(13 + to))
		if at, _ := m.find(wire.PSN(13 + to)); at != whereFuture || m.client != wire.PSN(13+to) {
			t.Errorf("%d stay: the next PSN is %v, %v", to, m.client, at)
		}
		m.add(2, false)
		for psn, want := range map[int]where{9: whereOwn, 10: whereMoved, 11: whereOwn, 12: whereOwn, 13 + to: whereOwn, 14 + to: whereOwn, 15 + to: whereFuture} {
			if at, _ := m.find(wire.PSN(psn)); at != want {
				t.Errorf("%d stay: PSN %d is %v, want %v", to, psn, at, want)
			}
		}
		for i := range to {
			if at, _ := m.find(wire.PSN(13 + i)); at != whereMoved {
				t.Errorf("%d stay: PSN %d is %v", to, 13+i, at)
			}
		}
		if _, own := m.find(wire.PSN(13 + to)); own != 12 {
			t.Errorf("%d stay: the next PSN at the server is %v", to, own)
		}
	}
}
