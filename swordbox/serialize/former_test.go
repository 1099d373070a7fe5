package serialize

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/requester"
)

// A request in flight on a shared connection may come too late for a new connection of its client's
// host after reconnectAge, for those of all hosts after formerAge, and at once when its own
// connection has ended. One such request is enough.
func TestLateRequests(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 2, rules: moveRule(1), cfg: Config{Shared: requester.Config{Silence: time.Hour}}})
	for range 3 {
		for _, c := range conns {
			c.one(c.write(512, 0, 8))
		}
	}
	r.tap = func(up bool, port int, _ []byte) bool { return up || port != r.server.port }
	for _, c := range conns {
		c.post(c.write(512, 0, 8))
	}
	r.settle()
	k := r.m.servers[0].links[0]
	since, ok := k.conn.Requests.Oldest()
	if !ok || k.conn.Requests.Outstanding() != 2 {
		t.Fatalf("%d requests are in flight", k.conn.Requests.Outstanding())
	}
	const slack = 10 * time.Microsecond // between the two requests
	stranger := ipOf(serverIP)
	for _, c := range []struct {
		after time.Duration
		host  netip.Addr
		want  bool
	}{
		{reconnectAge - slack, ipOf(1), false},
		{reconnectAge, ipOf(1), true},
		{reconnectAge + slack, ipOf(1), true},
		{reconnectAge + slack, ipOf(2), true},
		{reconnectAge + slack, stranger, false},
		{formerAge - slack, stranger, false},
		{formerAge, stranger, true},
	} {
		if got := k.isLate(since.Add(c.after), c.host); got != c.want {
			t.Errorf("after %v, of %v: late %v", c.after, c.host, got)
		}
	}
	for i, c := range conns {
		flow := r.sequencerOf(c).flow
		was := flow.State
		flow.State = conntrack.Closing
		if !k.isLate(since.Add(slack), stranger) {
			t.Errorf("the connection of client %d has ended, and its request is not late", i)
		}
		flow.State = was
	}
}

// The server's link is cut for longer than a client's NIC retries. The client connects again and
// repeats its WRITE. After that, its old request on the shared connection must not be executed.
func TestNothingOldBehindANewConnection(t *testing.T) { nothingOldBehind(t, true) }

// The same when the operator removes the rule before the client connects again.
func TestNothingOldBehindANewConnectionWithoutRule(t *testing.T) { nothingOldBehind(t, false) }

func nothingOldBehind(t *testing.T, ruled bool) {
	t.Helper()
	r, conns := known(t, rigConfig{clients: 1, rules: moveRule(1), cfg: Config{Shared: requester.Config{Silence: time.Hour}}})
	c := conns[0]
	write := func(c *conn, v uint64) {
		binary.NativeEndian.PutUint64(c.n.buf[8*v:], v)
		c.post(c.write(512, int(8*v), 8))
	}
	for v := range uint64(3) { // these prove the key and the connection
		write(c, v)
		r.run(time.Millisecond)
		c.done(verbs.Success)
	}
	moved := r.m.Stats().Moved
	cut, last := true, false
	r.tap = func(up bool, port int, _ []byte) bool {
		if up || port != r.server.port || !cut {
			return true
		}
		cut = !last // this one is lost, too, so that the switch's next retry is as late as possible
		return false
	}
	write(c, 10)
	r.run(time.Second)
	c.done(verbs.RetryExcErr)
	if n := r.m.Stats().Moved - moved; n != 1 {
		t.Fatalf("%d requests have moved, want 1", n)
	}
	if !ruled {
		r.useRules()
	}
	last = true
	for cut {
		r.run(time.Microsecond)
	}
	next := &conn{r: r, n: c.n, qp: c.n.newQP(t), server: r.server.newQP(t)}
	r.ready(next.qp, serverIP, next.server.Num(), r.psn, 16)
	r.ready(next.server, 1, next.qp.Num(), r.psn, 16)
	write(next, 11)
	r.run(time.Second)
	next.done(verbs.Success)
	if got := r.server.word(512); got != 11 {
		t.Errorf("the word is %d: a WRITE of the connection that has failed came behind one of the next", got)
	}
	if s := r.m.Stats(); s.TooEarly == 0 || ruled && r.sequencerOf(next).formers.list != nil {
		t.Errorf("%d requests came too early", s.TooEarly)
	}
}

// One packet of a moved WRITE is lost. Its client connects again before the switch retransmits the
// WRITE, as a client with a short ACK timeout does. The old WRITE must not be executed behind that
// of the new connection. Neither may it if the client has ended its connection by a DREQ at once.
func TestNothingOldBehindAQuickReconnect(t *testing.T) {
	for _, ended := range []bool{false, true} {
		r, conns := known(t, rigConfig{clients: 1, rules: moveRule(1), cfg: Config{Shared: requester.Config{RTO: 5 * time.Millisecond}}})
		c := conns[0]
		write := func(c *conn, v uint64) {
			binary.NativeEndian.PutUint64(c.n.buf[8*v:], v)
			c.post(c.write(512, int(8*v), 8))
		}
		for v := range uint64(3) {
			write(c, v)
			r.run(time.Millisecond)
			c.done(verbs.Success)
		}
		lose := true
		r.tap = func(up bool, port int, _ []byte) bool {
			if up || port != r.server.port || !lose {
				return true
			}
			lose = false
			return false
		}
		write(c, 10)
		if r.run(20 * time.Microsecond); lose {
			t.Fatal("no packet was lost")
		}
		if ended {
			r.sequencerOf(c).flow.State = conntrack.Closing
		} else {
			r.run(reconnectAge)
		}
		next := &conn{r: r, n: c.n, qp: c.n.newQP(t), server: r.server.newQP(t)}
		r.ready(next.qp, serverIP, next.server.Num(), r.psn, 16)
		r.ready(next.server, 1, next.qp.Num(), r.psn, 16)
		write(next, 11)
		r.run(time.Second)
		next.done(verbs.Success, verbs.Success) // the former WRITE, too
		if got := r.server.word(512); got != 11 {
			t.Errorf("ended %v: the word is %d: a WRITE of the former connection came behind one of the next", ended, got)
		}
		if r.m.Stats().TooEarly == 0 {
			t.Errorf("ended %v: no request came too early", ended)
		}
	}
}
