package serialize

import (
	"bytes"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// reattach gives the switch a new connection to the server, as the dialer does after the former one
// has failed.
func (r *rig) reattach() {
	r.do(func(c *pipeline.Ctx) {
		r.m.Detach(c, switchconn.Key{Server: ipOf(serverIP)}, r.gen)
		r.attach(c, 0, 16)
	})
}

// The server restarts with the same QPNs and R_Keys. A client that was silent meanwhile has a
// connection to a queue pair that does not exist any more. Its next atomic must not be executed on
// the new memory, on the switch's new connection.
func TestConnectionOfAFormerIncarnation(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 2})
	c := conns[0]
	// the queue pair does not exist at the server any more
	r.tap = func(up bool, port int, data []byte) bool {
		f := parse(data)
		return up || port != r.server.port || f.BTH.DestQP != c.server.Num()
	}
	r.reattach()
	before, word := r.m.Stats().Moved, r.server.word(64)
	c.post(c.faa(64, 1000, 0))
	r.run(time.Second)
	c.done(verbs.RetryExcErr)
	if now := r.m.Stats().Moved; now != before || r.server.word(64) != word {
		t.Errorf("%d requests of the former incarnation have moved, the word was %d and is %d", now-before, word, r.server.word(64))
	}
}

// The shared connection is a new one to the same incarnation of the server: the first request of
// each client proves that, and then requests move again.
func TestConnectionOfTheSameIncarnation(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 2})
	r.reattach()
	for i, c := range conns {
		before := r.m.Stats()
		for range 3 {
			c.post(c.faa(64, 1, 0))
			r.run(100 * time.Millisecond) // for a while after the first connection, no request for these words moves
			c.done(verbs.Success)
		}
		if s := r.m.Stats(); s.Proofs != before.Proofs+1 || s.Moved != before.Moved+2 {
			t.Errorf("client %d: %d proofs, %d of 3 requests have moved", i, s.Proofs-before.Proofs, s.Moved-before.Moved)
		}
	}
}

// A request is sent before the new shared connection is attached, and its answer arrives after
// that. This answer proves nothing: the server may have begun its new incarnation between request
// and answer.
func TestOldAnswerProvesNothing(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 1})
	c := conns[0]
	var answer []byte
	r.tap = func(up bool, port int, data []byte) bool {
		if !up || port != r.server.port {
			return true
		}
		answer = bytes.Clone(data)
		return false
	}
	c.post(c.read(512, 0, 8))
	r.run(20 * time.Microsecond)
	r.reattach()
	// every packet from here on is lost
	r.tap = func(up bool, port int, _ []byte) bool { return up || port != r.server.port }
	c.post(c.read(512, 8, 8))
	r.run(20 * time.Microsecond)
	r.launch(true, r.server.port, answer, false)
	r.run(20 * time.Microsecond)
	c.done(verbs.Success)
	if l := r.sequencerOf(c); l.conn.isProven() || l.conn.proof.asked != r.m.servers[0].incarnation {
		t.Error("the answer to an earlier request has proven the server's new incarnation")
	}
}

// sequencerOf returns the sequencer of a connection.
func (r *rig) sequencerOf(c *conn) *sequencer {
	r.t.Helper()
	for _, l := range r.m.flows.list {
		if l != nil && l.phase != closed && l.flow.RespQPN == c.server.Num() {
			return l
		}
	}
	r.t.Fatal("the connection has no sequencer")
	return nil
}

// After the server may have begun a new incarnation, an apparent duplicate is not answered from its
// record: it may be the first request of a new connection with the numbers of the old one.
func TestFormerIncarnationIsNotRemembered(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 1})
	c := conns[0]
	var asked []byte
	fatal := 0
	r.tap = func(up bool, port int, data []byte) bool {
		switch f := parse(data); {
		case up && port == 0 && f.BTH.Opcode.Is(wire.OpAtomic):
			asked = bytes.Clone(data)
		case !up && port == 0 && f.AETH.Syndrome == wire.NakRemoteOp:
			fatal++
		}
		return true
	}
	moved := r.m.Stats().Moved
	c.post(c.faa(64, 1, 0))
	r.run(time.Millisecond)
	c.done(verbs.Success)
	if r.m.Stats().Moved != moved+1 {
		t.Fatal("the request has not moved")
	}
	r.reattach()
	again := r.m.Stats().AnsweredAgain
	r.launch(true, 0, asked, false)
	r.run(100 * time.Microsecond)
	if s := r.m.Stats(); s.AnsweredAgain != again || fatal != 1 || s.Deaths != 1 {
		t.Errorf("answered again %d times, %d fatal NAKs, %d deaths", s.AnsweredAgain-again, fatal, s.Deaths)
	}
	// The packet was a late copy of a request on the same connection. Its client, which has the
	// answer, gets a fatal NAK for its next request.
	c.post(c.faa(64, 1, 0))
	r.run(time.Second)
	c.done(verbs.RemOpErr)
}

// A queue pair of the server gets the number of one that is gone, and a client of the same host
// connects to it. The PSNs of its requests and answers are far behind those that the switch knows
// of the old connection. The switch neither forwards the requests as duplicates, which it would not
// report to the words, nor translates the answers into PSNs of the old connection.
func TestNumbersFarBehindAreOfAnother(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 1})
	c := conns[0]
	l := r.sequencerOf(c)
	passed := 0
	r.tap = func(up bool, _ int, _ []byte) bool {
		if !up {
			passed++
		}
		return true
	}
	const far = -100_000
	f := wire.Frame{Eth: wire.Ethernet{Src: macOf(1), Dst: macOf(serverIP)}}
	f.IPv4 = wire.IPv4{Src: ipOf(1).As4(), Dst: ipOf(serverIP).As4(), TTL: 64}
	f.BTH = wire.BTH{Opcode: wire.RCFetchAdd, PKey: wire.DefaultPKey, DestQP: c.server.Num(), PSN: l.next.Add(far), AckReq: true}
	f.AtomicETH = wire.AtomicETH{VA: r.server.base + 64, RKey: r.server.key, SwapOrAdd: 1}
	r.launch(true, 0, f.AppendTo(nil), false)
	f.Eth, f.IPv4.Src, f.IPv4.Dst = wire.Ethernet{Src: macOf(serverIP), Dst: macOf(1)}, f.IPv4.Dst, f.IPv4.Src
	f.BTH = wire.BTH{Opcode: wire.RCAck, PKey: wire.DefaultPKey, DestQP: c.qp.Num(), PSN: l.conn.psns.own.Add(far)}
	f.AETH = wire.AETH{Syndrome: wire.AckNoCredits}
	r.launch(true, r.server.port, f.AppendTo(nil), false)
	r.run(10 * time.Microsecond)
	if s := r.m.Stats(); passed != 0 || s.TooOld != 1 || s.Ghosts != 1 {
		t.Errorf("%d packets have passed, %d were too old, %d ghosts", passed, s.TooOld, s.Ghosts)
	}
}

// A server that fences a client ends the client's connection with a DREQ, which the switch sees. If
// the client's host hangs and goes on later, the client's requests must not reach the server on the
// switch's connection.
func TestConnectionThatTheServerEnds(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 2})
	c := conns[0]
	r.tap = func(up bool, port int, data []byte) bool { // the queue pair does not exist any more
		f := parse(data)
		return up || port != r.server.port || f.BTH.DestQP != c.server.Num()
	}
	r.sequencerOf(c).flow.State = conntrack.Closing
	before, word := r.m.Stats().Moved, r.server.word(64)
	c.post(c.faa(64, 1000, 0))
	r.run(time.Second)
	c.done(verbs.RetryExcErr)
	if now := r.m.Stats().Moved; now != before || r.server.word(64) != word {
		t.Errorf("%d requests of an ended connection have moved, the word was %d and is %d", now-before, word, r.server.word(64))
	}
}

// A queue pair with the numbers of an old connection sends many WRITEs at once, up to a PSN that
// belonged to a READ of the old connection. The switch acknowledges none of them from its records:
// it could acknowledge only the WRITEs before the READ, and the NIC would take that for the answer
// to its own requests.
func TestNoACKEndsBeforeAnOldRead(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 1, rules: moveRule(1)})
	c := conns[0]
	c.prove(c.write(8192, 64, 8), c.read(8192, 64, 8))
	for range 4 {
		for i := range 40 {
			c.post(c.write(8192+8*i, 64, 8))
		}
		r.run(time.Millisecond)
		c.n.poll()
	}
	l := r.sequencerOf(c)
	read := l.next
	c.prove(c.read(8192, 64, 8))
	for range 16 {
		for i := range 40 {
			c.post(c.write(8192+8*i, 64, 8))
		}
		r.run(time.Millisecond)
		c.n.poll()
	}
	first := read.Add(-10)
	if l.replies.window.find(first) != nil || l.replies.window.find(read) == nil {
		t.Fatalf("the records are others than expected: %v, %v, %d of %d", l.replies.window.find(first), l.replies.window.find(read), r.m.Stats().Moved, wire.Diff(l.next, read))
	}
	r.tap = func(up bool, port int, data []byte) bool {
		if f := parse(data); !up && port == 0 && f.BTH.Opcode == wire.RCAck && wire.Diff(f.BTH.PSN, read) < 0 {
			t.Errorf("ACK of PSN %d, the READ had %d", f.BTH.PSN, read)
		}
		return true
	}
	f := wire.Frame{Eth: wire.Ethernet{Src: macOf(1), Dst: macOf(serverIP)}}
	f.IPv4 = wire.IPv4{Src: ipOf(1).As4(), Dst: ipOf(serverIP).As4(), TTL: 64}
	for i := range 10 {
		f.BTH = wire.BTH{Opcode: wire.RCWriteOnly, PKey: wire.DefaultPKey, DestQP: c.server.Num(), PSN: first.Add(i), AckReq: true}
		f.RETH = wire.RETH{VA: r.server.base + 64, RKey: r.server.key}
		r.launch(true, 0, f.AppendTo(nil), false)
	}
	r.run(time.Millisecond)
}
