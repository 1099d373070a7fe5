package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// While there are no rules, new connections change words, and the switch does not see that. When
// rules are added again, the switch does not use the earlier values of the words.
func TestWordsAreForgottenWithTheRules(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 2})
	r.m.SetRules(nil)
	other := r.connect(1)
	other.post(other.faa(64, 1000, 0))
	r.run(time.Millisecond)
	other.done(verbs.Success)
	set, err := rules.NewSet(atomicsRule(1))
	if err != nil {
		t.Fatal(err)
	}
	r.m.SetRules(set)
	c := conns[0]
	c.post(c.faa(64, 1, 0))
	r.run(10 * time.Millisecond)
	c.done(verbs.Success)
	if was, is := c.n.word(0), r.server.word(64); was < 1000 || is != was+1 {
		t.Errorf("was %d, is %d: the addition of 1000 is lost", was, is)
	}
}

// A replaced atomic may still be in flight when the last rule is removed: no request of a new
// connection may change the word before it.
func TestNoRequestOvertakesWhenTheRulesGo(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 2})
	lost, lose := 0, true
	c := conns[0]
	r.tap = func(up bool, port int, data []byte) bool {
		if f := parse(data); !up && port == r.server.port && f.SrcAddr() == ipOf(switchIP) && lose {
			lost++
			return false
		}
		return true
	}
	c.post(c.faa(64, 1, 0))
	r.step(r.now + hop)
	r.m.SetRules(nil)
	other := r.connect(1)
	other.post(other.faa(64, 1000, 0))
	r.settle()
	lose = false
	r.run(20 * time.Millisecond)
	c.done(verbs.Success)
	other.done(verbs.Success)
	if lost == 0 {
		t.Error("no request was in flight when the rules were removed")
	}
	if got := r.server.word(64); got < 1000 {
		t.Errorf("the word is %d: the addition of 1000 is lost", got)
	}
}

// A NIC that retries for longer than Config.Words.Budget retransmits a request for which its word
// does not wait any more. The switch announces the request to the word again.
func TestRetransmissionBehindTheBudget(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 2, cfg: Config{
		Words: atomiccache.Config{Budget: time.Millisecond, Patience: 100 * time.Microsecond, HoldOff: 200 * time.Microsecond},
	}})
	slow, fast := conns[0], conns[1]
	lose := true
	r.tap = func(up bool, port int, data []byte) bool {
		f := parse(data)
		return !lose || up || port != r.server.port || f.SrcAddr() != ipOf(1)
	}
	slow.post(slow.faa(128, 1000, 0)) // the first atomic on its word, which travels on the client's connection
	r.run(100 * time.Microsecond)
	lose = false
	for range 12 {
		fast.post(fast.faa(128, 1, 0))
		r.run(time.Millisecond)
		fast.done(verbs.Success)
	}
	r.run(20 * time.Millisecond)
	slow.done(verbs.Success)
	fast.post(fast.faa(128, 1, 0))
	r.run(5 * time.Millisecond)
	fast.done(verbs.Success)
	if got := r.server.word(128); got != 1013 || r.m.Stats().Replaced == 0 {
		t.Errorf("the word is %d: %+v", got, r.m.Stats())
	}
}

// A server is busy while a request is in flight on one of its shared connections, and while one waits
// there; the requests on the connection have then not all ended.
func TestServerIsBusy(t *testing.T) {
	r := newRig(t, rigConfig{clients: 1, rules: moveRule(1), depth: 1})
	c := r.connect(0)
	for range 3 {
		c.one(c.read(64, 0, 8))
	}
	k := r.m.servers[0].links[0]
	if k.s.busy() || k.cleanSince(r.now) != r.now {
		t.Error("nothing is in flight, and the server is busy")
	}
	r.tap = func(up bool, port int, _ []byte) bool { return up || port != r.server.port }
	c.post(c.read(64, 0, 8), c.read(64, 0, 8))
	r.settle()
	if k.conn.Requests.Outstanding() != 1 || k.conn.Requests.Queued() != 1 {
		t.Fatalf("%d in flight, %d wait", k.conn.Requests.Outstanding(), k.conn.Requests.Queued())
	}
	if !k.s.busy() || k.cleanSince(r.now) == r.now {
		t.Error("requests are in flight, and the server is not busy")
	}
	r.tap = nil
	r.run(20 * time.Millisecond)
	c.done(verbs.Success, verbs.Success)
	if k.s.busy() || k.cleanSince(r.now) != r.now {
		t.Error("all requests have ended, and the server is busy")
	}
}

// The words of a server without rules are forgotten when its last request has ended, unless rules have
// come back.
func TestWordsOfALeavingServer(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 1})
	m, s := r.m, r.m.servers[0]
	left := func() (in int, state atomiccache.State) {
		m.words.Each(func(w *atomiccache.Word) { state = w.State })
		return len(m.leaving), state
	}
	m.leaving[s.addr] = s
	m.drain(r.now)
	if n, state := left(); n != 1 || state != atomiccache.Known || !m.Draining() {
		t.Errorf("rules move its requests: %d servers leave, the word is %v", n, state)
	}
	s.moves = false
	r.tap = func(up bool, port int, _ []byte) bool { return up || port != r.server.port }
	conns[0].post(conns[0].faa(64, 1, 0))
	r.step(r.now + hop)
	m.drain(r.now)
	if n, state := left(); n != 1 || state != atomiccache.Known {
		t.Errorf("a request is in flight: %d servers leave, the word is %v", n, state)
	}
	r.tap = nil
	r.run(20 * time.Millisecond)
	if n, state := left(); n != 0 || state != atomiccache.Pass || m.Draining() {
		t.Errorf("all have ended: %d servers leave, the word is %v", n, state)
	}
}

// A request of a flow without rules must wait while a word that it changes has a request in flight on a
// shared connection. One that changes no such word passes.
func TestBypassOfABusyWord(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 1})
	s := r.m.servers[0]
	r.tap = func(up bool, port int, _ []byte) bool { return up || port != r.server.port }
	conns[0].post(conns[0].faa(64, 1, 0))
	r.step(r.now + hop)
	for name, c := range map[string]struct {
		change func(p *pipeline.Parsed)
		want   bool
	}{
		"WRITE":              {func(*pipeline.Parsed) {}, true},
		"atomic":             {func(p *pipeline.Parsed) { p.BTH.Opcode = wire.RCFetchAdd }, true},
		"READ":               {func(p *pipeline.Parsed) { p.BTH.Opcode = wire.RCReadRequest }, false},
		"response":           {func(p *pipeline.Parsed) { p.BTH.Opcode = wire.RCAtomicAck }, false},
		"no bytes":           {func(p *pipeline.Parsed) { p.RETH.Length = 0 }, false},
		"behind the word":    {func(p *pipeline.Parsed) { p.RETH.VA += 8 }, false},
		"another server":     {func(p *pipeline.Parsed) { p.IPv4.Dst = ipOf(1).As4() }, false},
		"words do not count": {func(*pipeline.Parsed) { s.watch = false }, false},
	} {
		p := new(pipeline.Parsed)
		p.IPv4 = wire.IPv4{Src: ipOf(1).As4(), Dst: ipOf(serverIP).As4()}
		p.BTH = wire.BTH{Opcode: wire.RCWriteOnly, DestQP: 0x99}
		p.RETH = wire.RETH{VA: r.server.base + 64, Length: 8}
		p.AtomicETH.VA = p.RETH.VA
		s.watch = true
		c.change(p)
		before := r.m.stats.Bypassed
		r.do(func(ctx *pipeline.Ctx) {
			if v := r.m.Bypass(ctx, nil, p); (v.Reason == ReasonBusy) != c.want || (v.Action == pipeline.ActForward) == c.want {
				t.Errorf("%s: %+v", name, v)
			}
		})
		if n := r.m.stats.Bypassed - before; (n == 1) != c.want {
			t.Errorf("%s: %d had to wait", name, n)
		}
	}
}

// When the last rule of a server has gone, a new connection still waits for the requests that their
// clients have given up. One on which the server has answered does not, and neither does a packet
// without a connection.
func TestBypassWaitsForFormerRequests(t *testing.T) {
	r, c := moved(t, 1)
	r.tap = func(up bool, port int, _ []byte) bool { return up || port != r.server.port }
	c.post(c.read(64, 0, 8))
	r.settle()
	r.useRules()
	for name, tc := range map[string]struct {
		after time.Duration
		flow  *conntrack.Flow
		want  bool
	}{
		"too soon":         {0, &conntrack.Flow{}, false},
		"new":              {formerAge, &conntrack.Flow{}, true},
		"answered":         {formerAge, &conntrack.Flow{Sequence: conntrack.Sequence{HasAcked: true}}, false},
		"of no connection": {formerAge, nil, false},
	} {
		p := new(pipeline.Parsed)
		p.IPv4 = wire.IPv4{Src: ipOf(1).As4(), Dst: ipOf(serverIP).As4()}
		p.BTH = wire.BTH{Opcode: wire.RCReadRequest, DestQP: 0x99}
		before := r.m.stats.TooEarly
		r.do(func(ctx *pipeline.Ctx) {
			late := *ctx
			late.Now = late.Now.Add(tc.after)
			if v := r.m.Bypass(&late, tc.flow, p); (v.Reason == ReasonBusy) != tc.want {
				t.Errorf("%s: %+v", name, v)
			}
		})
		if n := r.m.stats.TooEarly - before; (n == 1) != tc.want {
			t.Errorf("%s: %d came too early", name, n)
		}
	}
}
