package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
)

// busyWord keeps four additions to a word in flight on a connection. After a while it calls f, and
// goes on for longer than eight timeouts of a client.
func busyWord(c *conn, word int, f func()) {
	c.r.t.Helper()
	for range 4 {
		c.post(c.faa(word, 1, 0))
	}
	begin := c.r.now
	for c.r.now < begin.Add(60*time.Millisecond) {
		c.r.step(c.r.now + 50*hop)
		for _, wc := range c.n.poll() {
			if wc.Status != verbs.Success {
				c.r.t.Fatalf("an addition of the load: %v", wc.Status)
			}
			c.post(c.faa(word, 1, 0))
		}
		if f != nil && c.r.now > begin.Add(time.Millisecond) {
			f()
			f = nil
		}
	}
	c.r.settle()
	c.n.poll()
}

// Others add to a word without a pause. A client's request must travel on the client's connection,
// and the switch cannot hold it, because it has not learnt the connection. So the request can pass
// only when nothing is in flight for the word on the shared connection. The word lets it pass before
// the client has used up its retries.
func TestBusyWordLetsRequestsOfLooseFlowsPass(t *testing.T) {
	for name, post := range map[string]func(c *conn){
		"atomic": func(c *conn) { c.post(c.faa(64, 1<<32, 0)) },
		"WRITE":  func(c *conn) { c.post(c.write(32, 0, 64)) },
	} {
		t.Run(name, func(t *testing.T) {
			r, conns := known(t, rigConfig{clients: 3})
			n := r.clients[2]
			c := &conn{r: r, n: n, qp: n.newQP(t), server: r.server.newQP(t)}
			r.ready(c.qp, serverIP, c.server.Num(), r.psn, 16)
			r.ready(c.server, 3, c.qp.Num(), r.psn, 16)
			busyWord(conns[0], 64, func() { post(c) })
			c.done(verbs.Success)
			if s := r.m.Stats(); s.LooseDropped == 0 || s.Replaced < 200 {
				t.Errorf("%d dropped, %d additions replaced", s.LooseDropped, s.Replaced)
			}
		})
	}
}

// The same for a request that comes again when no NIC should retransmit it any more, so that its
// word has become known meanwhile.
func TestBusyWordLetsDuplicatesPass(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 3, cfg: Config{Words: atomiccache.Config{Budget: time.Millisecond}}})
	a, c := conns[0], conns[2]
	until := r.now.Add(2 * time.Millisecond)
	r.tap = func(_ bool, port int, data []byte) bool {
		f := parse(data)
		return r.now > until || port != r.server.port || f.SrcAddr() != ipOf(3)
	}
	c.post(c.write(1024, 0, 64))
	busyWord(a, 1024, func() {})
	c.done(verbs.Success)
	if s := r.m.Stats(); s.RepeatsDropped == 0 || s.RepeatsDropped > 2 {
		t.Errorf("%d repeats were dropped", s.RepeatsDropped)
	}
}
