package serialize

import (
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The connection manager has not announced a connection, and the switch drops its first requests,
// because a word must wait for another request. When the client retransmits them, they are new to
// the server, although the switch has seen them on the flow. The switch must not forward them as
// duplicates, which it does not report to the word.
func TestDroppedBeforeTheFlowIsKnown(t *testing.T) {
	for first := range 3 { // requests that come first
		r, conns := known(t, rigConfig{clients: 2})
		n := r.clients[1]
		c := &conn{r: r, n: n, qp: n.newQP(t), server: r.server.newQP(t)}
		r.ready(c.qp, serverIP, c.server.Num(), r.psn, 16)
		r.ready(c.server, 2, c.qp.Num(), r.psn, 16)
		for range first {
			c.post(c.write(0, 0, 0))
			r.settle()
			c.done(verbs.Success)
		}
		c.post(c.faa(64, 1000, 0), c.faa(64, 1000, 8), c.faa(64, 1000, 16), c.faa(64, 1000, 24))
		r.settle()
		if r.m.Stats().LooseDropped == 0 {
			t.Fatal("nothing was dropped")
		}
		c.post(c.faa(64, 1000, 32))
		r.settle()
		var was []uint64
		for range 40 { // retransmissions of the other client come in between
			conns[0].post(conns[0].faa(64, 1, 0))
			r.run(3 * time.Millisecond)
			conns[0].done(verbs.Success)
			was = append(was, conns[0].n.word(0))
		}
		r.run(100 * time.Millisecond)
		var ok int
		for _, wc := range n.poll() {
			if wc.Status == verbs.Success {
				ok++
			}
		}
		slices.Sort(was)
		if got := r.server.word(64); ok != 5 || got != 6+5*1000+40 || len(slices.Compact(was)) != 40 {
			t.Errorf("after %d: %d additions of 1000 and 40 of 1 made 6 to %d", first, ok, got)
		}
	}
}
