package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// refuseOldest sends additions of two clients on the shared connection. The server refuses the
// first one. After that no packet reaches the server.
func refuseOldest(t *testing.T) (r *rig, conns []*conn) {
	t.Helper()
	r, conns = known(t, rigConfig{clients: 2, manual: true})
	for _, c := range conns { // these prove each client's connection, and make the word known
		c.post(c.faa(64, 1, 0))
		r.run(100 * time.Millisecond)
		c.done(verbs.Success)
	}
	moved := r.m.Stats().Moved
	r.tap = func(up bool, port int, _ []byte) bool { return up || port != r.server.port }
	for _, c := range conns {
		c.post(c.faa(64, 1000, 0))
	}
	r.run(20 * time.Microsecond)
	if n := r.m.Stats().Moved - moved; n != 2 {
		t.Fatalf("%d of 2 requests have moved", n)
	}
	l := r.m.servers[0].links[0]
	f := wire.Frame{Eth: wire.Ethernet{Src: macOf(serverIP), Dst: macOf(switchIP)}}
	f.IPv4 = wire.IPv4{Src: ipOf(serverIP).As4(), Dst: ipOf(switchIP).As4(), TTL: 64}
	f.BTH = wire.BTH{Opcode: wire.RCAck, PKey: wire.DefaultPKey, DestQP: l.ownQPN, PSN: l.conn.Requests.NextPSN().Add(-2)}
	f.AETH.Syndrome = wire.NakRemoteOp
	r.launch(true, r.server.port, f.AppendTo(nil), false)
	r.run(10 * time.Microsecond)
	if s := r.m.Stats(); s.LinkFailures != 1 || s.TakenBack == 0 {
		t.Fatalf("%+v", s)
	}
	return r, conns
}

// attachNext attaches a new shared connection after the former one has failed.
func (r *rig) attachNext() { r.do(func(c *pipeline.Ctx) { r.attach(c, 0, 16) }) }

// A request behind one that the server has refused counts as not received, and its client
// retransmits it.
func TestTakenBackComesAgain(t *testing.T) {
	r, conns := refuseOldest(t)
	word := r.server.word(64)
	r.tap = nil
	r.attachNext()
	r.run(100 * time.Millisecond)
	ok := 0
	for _, c := range conns {
		for _, wc := range c.n.poll() {
			if wc.Status == verbs.Success {
				ok++
			}
		}
	}
	if got := r.server.word(64); ok == 0 || got != word+uint64(1000*ok) {
		t.Errorf("%d additions of 1000 are done, and the word went from %d to %d", ok, word, got)
	}
}

// The server refuses a request and then begins a new incarnation with the same numbers. Requests
// behind the refused one must not be executed by the new incarnation: their clients' queue pairs do
// not exist any more.
func TestNothingWaitsForTheNextIncarnation(t *testing.T) {
	r, conns := refuseOldest(t)
	word := r.server.word(64)
	r.tap = func(up bool, port int, data []byte) bool {
		f := parse(data)
		return up || port != r.server.port || f.BTH.DestQP != conns[0].server.Num() && f.BTH.DestQP != conns[1].server.Num()
	}
	r.attachNext()
	r.run(time.Second)
	if got := r.server.word(64); got != word {
		t.Errorf("requests of the former incarnation made %d of %d", got, word)
	}
}

// The requests that a refused one takes back count as not received when the last of them has ended,
// with those that are held behind them. One NAK makes the client send them again.
func TestRequestsAreTakenBackTogether(t *testing.T) {
	r, l, got := answersTo(t)
	first := l.next
	r.do(func(ctx *pipeline.Ctx) {
		l.replies.window = window{max: 8}
		l.place, l.out = 0, 2
		for range 2 {
			l.replies.window.add(l.next, wire.RCWriteOnly).span = 1
			l.assign(1, true)
			l.advance(1)
		}
		holding(ctx, l, 1)
		before := r.m.stats
		l.out--
		l.takeBack(ctx)
		if l.next != first.Add(3) || l.replies.window.outstanding() != 2 || l.waits.held.n != 1 || r.m.stats.TakenBack != before.TakenBack+1 || l.naks != inOrder {
			t.Errorf("before the last one: next %v, %d in the window, %d held", l.next, l.replies.window.outstanding(), l.waits.held.n)
		}
		l.out--
		l.takeBack(ctx)
		if l.next != first || l.conn.psns.client != first || l.replies.window.outstanding() != 0 || l.waits.held.n != 0 || r.m.stats.TakenBack != before.TakenBack+2 || l.naks != nakSent || r.m.stats.SequenceNaks != before.SequenceNaks+1 {
			t.Errorf("behind the last one: next %v, %d in the window, %d held, %v", l.next, l.replies.window.outstanding(), l.waits.held.n, l.naks)
		}
	})
	if len(*got) != 1 || (*got)[0] != first {
		t.Errorf("NAKs of %v, want %v", *got, first)
	}
}
