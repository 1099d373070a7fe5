package serialize

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// An operator sees the state of each flow, word and shared connection in its table.
func TestStatesOfTheMachine(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 1})
	states := func() map[string]string {
		got := map[string]string{}
		r.m.States(func(table string, entry uint32, state string) {
			if entry == 0 {
				got[table] = state
			}
		})
		return got
	}
	want := map[string]string{
		"phase": "synced", "NAK": "inOrder", "message": "between", "place": "shared", "answers": "done",
		"word": "Known", "shared connection": "up",
	}
	check := func() {
		t.Helper()
		got := states()
		for table, state := range want {
			if !strings.EqualFold(got[table], state) {
				t.Errorf("%s is %q, want %q", table, got[table], state)
			}
		}
		if len(got) != len(want) {
			t.Errorf("tables %v", got)
		}
	}
	check()
	conns[0].post(conns[0].faa(64, 1, 0))
	r.step(r.now + hop) // the request has reached the switch
	want["answers"] = "inFlight"
	check()
}

// The answers of a flow are owed, or wait for READs that are executed again, also with one record.
func TestNamesOfAnswers(t *testing.T) {
	for want, w := range map[string]window{
		"done": {}, "owed": {owed: 1, redos: 1, tail: 1}, "redoing": {redos: 1, tail: 1}, "inFlight": {tail: 1},
	} {
		if got := w.answersName(); got != want {
			t.Errorf("%+v: %s, want %s", w, got, want)
		}
	}
}

// When a shared connection ends, the values of its words are not known any more, and those of the
// words on other connections still are. The end of another generation, of an unknown connection, or
// of one that has ended already changes nothing.
func TestEndOfASharedConnection(t *testing.T) {
	r := newRig(t, rigConfig{clients: 1, shards: 2, rules: atomicsRule(2)})
	c := r.connect(0)
	for range 4 {
		for off := 64; off < 128; off += 8 {
			c.one(c.faa(off, 1, 0))
		}
	}
	perShard := func() (known [2]int) {
		r.m.words.Each(func(w *atomiccache.Word) {
			if w.State == atomiccache.Known {
				known[r.m.servers[0].shardOf(w.VA)]++
			}
		})
		return known
	}
	before := perShard()
	if before[0] == 0 || before[1] == 0 {
		t.Fatalf("known words %v: the test needs some on each connection", before)
	}
	end := func(k switchconn.Key, generation uint32) {
		r.do(func(ctx *pipeline.Ctx) { r.m.Detach(ctx, k, generation) })
	}
	key := switchconn.Key{Server: ipOf(serverIP), Shard: 1}
	gen := r.m.servers[0].links[1].generation
	end(key, gen+1)
	end(switchconn.Key{Server: ipOf(serverIP), Shard: 7}, gen)
	end(switchconn.Key{Server: ipOf(1)}, gen)
	if got := perShard(); got != before || len(r.m.byQPN) != 2 {
		t.Errorf("%v known words and %d connections, want %v and 2", got, len(r.m.byQPN), before)
	}
	end(key, gen)
	if got := perShard(); got != [2]int{before[0], 0} || len(r.m.byQPN) != 1 {
		t.Errorf("%v known words, want none of %d on the second connection", got, before[1])
	}
	for off := 64; off < 128; off += 8 {
		c.one(c.faa(off, 1, 0))
	}
	after := perShard()
	if end(key, gen); perShard() != after {
		t.Errorf("a connection that has ended ends again: known words %v, want %v", perShard(), after)
	}
}

// A connection that ends with all requests answered makes no word wait: the next atomic on a word
// that was not known can be replaced as soon as without that end. One that ends with a request in
// flight does.
func TestWordsDoNotWaitForAnEndedConnection(t *testing.T) {
	for _, busy := range []bool{false, true} {
		r, conns := known(t, rigConfig{clients: 2})
		a, b := conns[0], conns[1]
		r.run(20 * time.Millisecond)
		if busy {
			r.tap = func(up bool, port int, _ []byte) bool { return !up || port != r.server.port }
			a.post(a.write(512, 0, 8))
			r.settle()
			r.tap = nil
		}
		r.do(func(c *pipeline.Ctx) { r.m.Closed(c, r.sequencerOf(a).flow) })
		r.clients[0].dead = true
		before := r.m.Stats().Replaced
		for range 5 {
			b.post(b.faa(1024, 1, 0))
			r.run(100 * time.Microsecond)
			b.done(verbs.Success)
		}
		if n := r.m.Stats().Replaced - before; (n > 0) == busy {
			t.Errorf("a request in flight %v: %d of 5 atomics were replaced", busy, n)
		}
	}
}

// The switch goes on expecting the right PSN of a flow to a server whose rules were removed.
func TestFlowsWithoutRulesAreFollowed(t *testing.T) {
	r := newRig(t, rigConfig{clients: 1, rules: moveRule(1)})
	r.useRules()
	r.settle()
	c := r.connect(0)
	f := wire.Frame{IPv4: wire.IPv4{Src: ipOf(1).As4(), Dst: ipOf(serverIP).As4()}}
	f.BTH = wire.BTH{Opcode: wire.RCReadRequest, DestQP: c.server.Num()}
	flow := r.g.track.Known(&f)
	if flow == nil {
		t.Fatal("the flow is not tracked")
	}
	for i := range 3 {
		c.one(c.read(64, 0, 3000))
		if want := r.psn.Add(4 + 3*(i+1)); flow.Expected != want {
			t.Errorf("after %d READs of 3 packets the switch expects PSN %v, want %v", i+1, flow.Expected, want)
		}
	}
}

// A flow that the server has refused may be evicted from the table of flows: it holds no requests,
// and is not pinned.
func TestRefusedFlowIsNotPinned(t *testing.T) {
	r, c := moved(t, 1)
	l := r.sequencerOf(c)
	if !l.flow.Pinned {
		t.Fatal("a flow with moved requests is not pinned")
	}
	wr := c.read(64, 0, 8)
	wr.RKey ^= 0x5555
	c.post(wr, c.write(64, 0, 8))
	r.run(time.Millisecond)
	c.done(verbs.RemAccessErr, verbs.WRFlushErr)
	if l.phase != refused || l.flow.Pinned || l.waits.held.n != 0 || l.info().State != "dead" {
		t.Errorf("phase %v, pinned %v, %d held, shown as %s", l.phase, l.flow.Pinned, l.waits.held.n, l.info().State)
	}
	// The fatal NAK for a later request names the refused one, for which the client's NIC waits.
	var named []wire.PSN
	r.tap = func(up bool, port int, data []byte) bool {
		if f := parse(data); !up && port == c.n.port && f.AETH.Syndrome == wire.NakRemoteAccess {
			named = append(named, f.BTH.PSN)
		}
		return true
	}
	f := wire.Frame{Eth: wire.Ethernet{Src: macOf(1), Dst: macOf(serverIP)}}
	f.IPv4 = wire.IPv4{Src: ipOf(1).As4(), Dst: ipOf(serverIP).As4(), TTL: 64}
	f.BTH = wire.BTH{Opcode: wire.RCSendOnly, PKey: wire.DefaultPKey, DestQP: c.server.Num(), PSN: l.next}
	dead := l.replies.deadPSN
	for range 2 {
		r.launch(true, c.n.port, f.AppendTo(nil), false)
		r.settle()
		f.BTH.PSN = f.BTH.PSN.Add(1)
	}
	if !slices.Equal(named, []wire.PSN{dead, dead}) {
		t.Errorf("requests behind the refused one, PSN %v, draw NAKs of %v", dead, named)
	}
}

// A CAS that is held behind other requests of its flow waits for its value for as long as the rule
// says from its arrival, and is then answered, without a retransmission by the client.
func TestWaitBehindOtherRequestsEnds(t *testing.T) {
	set := missRule(rules.AnswerWait)
	r, conns := locked(t, rigConfig{clients: 2, rules: set})
	b := conns[1]
	begin := r.now
	b.post(b.write(4096, 0, 8), b.cas(64, 0, 9, 8)) // the CAS would fail, and is held for the answer to the WRITE
	r.settle()
	b.done(verbs.Success)
	if l := r.sequencerOf(b); l.waits.awaits.word == nil || l.waits.held.n != 1 {
		t.Fatal("the CAS does not wait")
	}
	for len(r.clients[1].poll()) == 0 && r.now < begin.Add(time.Second) {
		r.step(r.now + 5*hop)
	}
	patience := set[0].MissPatience()
	if took := r.now.Sub(begin); took < patience || took > patience+200*time.Microsecond {
		t.Errorf("the CAS was answered after %v, its patience is %v", took, patience)
	}
	if got := b.n.word(8); got != 1 {
		t.Errorf("was %d, want 1", got)
	}
}

// The switch counts the packets of a READ's response that it has forwarded without a gap: the
// oldest PSN without answer is the one behind them.
func TestPacketsOfAReadResponse(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 1, rules: moveRule(1)})
	c := conns[0]
	l := r.sequencerOf(c)
	first := l.next
	answers := 0
	r.tap = func(up bool, port int, _ []byte) bool {
		if up && port == r.server.port {
			answers++
		}
		return !up || port != r.server.port || answers <= 2
	}
	c.post(c.read(1024, 0, 4096))
	r.settle()
	if got := l.incomplete(); got != first.Add(2) {
		t.Errorf("2 of 4 packets have passed: the oldest PSN without answer is %v, the READ's is %v", got, first)
	}
	r.tap = nil
	r.run(50 * time.Millisecond)
	c.done(verbs.Success)
	if got := l.incomplete(); got != first.Add(4) {
		t.Errorf("all have passed: the oldest PSN without answer is %v, the READ's is %v", got, first)
	}
}

// An operation on a range of bytes is counted by the words in the range alone, and by them only for
// requests before its end.
func TestWordsThatCountAnOperation(t *testing.T) {
	table := atomiccache.New(atomiccache.Config{})
	in, out := table.Get(1, atomiccache.Key{VA: 64}), table.Get(1, atomiccache.Key{VA: 512})
	o := clientOps{max: 4}
	op := o.add()
	op.first, op.end, op.all, op.va, op.n = 10, 15, true, 64, 100
	op.decision = table.ClientAll(2, 0, op.va, op.n)
	for _, c := range []struct {
		w    *atomiccache.Word
		end  wire.PSN
		want bool
	}{{in, 14, true}, {in, 15, true}, {in, 16, false}, {out, 15, false}} {
		if got := o.countedBy(3, c.w, c.end); got != c.want {
			t.Errorf("the word at %d counts requests before PSN %v: %v", c.w.VA, c.end, got)
		}
	}
}

// Packets of a message whose first packet the switch did not see join one operation, which ends
// behind the newest of them: words wait until the server has acknowledged the last.
func TestPartsOfAnUnknownMessageJoin(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 1})
	k := &r.sequencerOf(conns[0]).conn
	now := r.now + clock.Time(time.Millisecond)
	first := k.psns.own
	for i := range 3 {
		x := extent{first.Add(i), first.Add(i + 1), 0, atomiccache.Everything}
		if !k.announcePart(now, &x) {
			t.Fatalf("part %d is refused", i)
		}
		if !k.announcePart(now, &x) { // it comes twice
			t.Fatalf("part %d is refused the second time", i)
		}
		if n := k.ops.tail - k.ops.head; n != 1 {
			t.Fatalf("%d operations for %d parts", n, i+1)
		}
	}
	waits := func() (n int) {
		r.m.words.Each(func(w *atomiccache.Word) {
			n += w.Pending
		})
		return n
	}
	before := waits()
	k.ack(now, first.Add(2))
	if n := k.ops.tail - k.ops.head; n != 1 || waits() != before {
		t.Errorf("two of three parts are acknowledged: %d operations", n)
	}
	k.ack(now, first.Add(3))
	if n := k.ops.tail - k.ops.head; n != 0 {
		t.Errorf("all parts are acknowledged: %d operations", n)
	}
}

// After its start the map knows no place before the segment that it begins with, and as many
// segments as it may: PSNs of moved requests and of others are told apart.
func TestPSNMapBegins(t *testing.T) {
	var m psnMap
	for _, at := range []wire.PSN{100, 7000} { // it begins a second time in the same memory
		m.start(at, 4)
		m.add(2, false)
		m.add(1, true)
		m.add(2, false)
		var got []where
		for psn := at; psn != at.Add(6); psn = psn.Add(1) {
			w, _ := m.find(psn)
			got = append(got, w)
		}
		if want := []where{whereOwn, whereOwn, whereMoved, whereOwn, whereOwn, whereFuture}; !slices.Equal(got, want) {
			t.Errorf("from %v on: %v, want %v", at, got, want)
		}
		if w, own := m.find(at.Add(-1)); w != whereOwn || own != at.Add(-1) {
			t.Errorf("PSN %v, before the first, is %v at the server", at.Add(-1), own)
		}
		if w, own := m.find(at.Add(4)); w != whereOwn || own != at.Add(3) {
			t.Errorf("PSN %v is %v at the server", at.Add(4), own)
		}
	}
}

// A capture says that a request waits for room only if it does.
func TestNoteOfARequestThatWaits(t *testing.T) {
	r := newRig(t, rigConfig{clients: 1, rules: moveRule(1), depth: 1})
	c := r.connect(0)
	for range 3 {
		c.one(c.read(64, 0, 8))
	}
	r.sw.Observe(true)
	c.post(c.read(64, 0, 8), c.read(64, 0, 8), c.read(64, 0, 8))
	r.run(time.Millisecond)
	c.done(verbs.Success, verbs.Success, verbs.Success)
	waits := 0
	for _, n := range r.notes {
		if strings.Contains(n, "waits for room") {
			waits++
		}
	}
	if waits != 2 {
		t.Errorf("%d of 3 requests waited for room on a connection with one READ in flight:\n%s", waits, strings.Join(r.notes, "\n"))
	}
}

// A client's NIC need not request an acknowledgement of each WRITE. The switch does for those on the
// client's connection, and a capture says so.
func TestNoteOfARequestedAcknowledgement(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 1})
	c := conns[0]
	r.sw.Observe(true)
	asked := false
	r.tap = func(up bool, port int, data []byte) bool {
		f := parse(data)
		switch {
		case up && port == c.n.port && f.BTH.AckReq:
			f.BTH.AckReq = false
			r.launch(true, port, f.AppendTo(nil), false)
			return false
		case !up && port == r.server.port:
			asked = f.BTH.AckReq
		}
		return true
	}
	c.one(c.write(4096, 0, 8))
	if notes := strings.Join(r.notes, "\n"); !asked || strings.Count(notes, "acknowledgement requested") != 2 {
		t.Errorf("asked %v; notes of a WRITE on both links:\n%s", asked, notes)
	}
}
