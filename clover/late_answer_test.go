package clover

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
)

// TestLateAnswerOfAReport: the answer to a report, read late, does not take a client back to an epoch
// whose end it has confirmed. A client that has not heard of the end yet may fill the shared cache
// for that epoch.
func TestLateAnswerOfAReport(t *testing.T) {
	shared := NewCache(0)
	open := func(epoch uint32) *Client {
		c := (&finder{session: &session{cfg: Config{Cache: shared}}, cache: shared}).client()
		c.session.lease.epoch = epoch
		c.session.space = layout.Space{Servers: 1, Shortcuts: 4, Entries: layout.Counts{8}}
		c.session.servers = []server{{generation: 7}}
		return c
	}
	a, slow := open(4), open(4)
	a.session.renew(0, &rpc.Answer{Epoch: 5}) // the answer to a call
	a.session.lease.confirmed = 5
	a.session.renew(0, &rpc.Answer{Epoch: 4}) // the answer to a report that was sent before the call; hear reads it now
	slow.finder.remember(5, known{at: layout.Location{Handle: a.session.space.First(0, 0), Version: 1}, epoch: 4})
	if k, ok := a.finder.cached(5); ok {
		t.Errorf("a client that has confirmed epoch %d believes %+v", a.session.lease.confirmed, k)
	}
}
