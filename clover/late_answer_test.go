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
		c := new(Client)
		c.cfg.Cache, c.cache, c.lease.epoch = shared, shared, epoch
		c.space = layout.Space{Servers: 1, Shortcuts: 4, Entries: layout.Counts{8}}
		c.servers = []server{{generation: 7}}
		return c
	}
	a, slow := open(4), open(4)
	a.renew(0, &rpc.Answer{Epoch: 5}) // the answer to a call
	a.lease.confirmed = 5
	a.renew(0, &rpc.Answer{Epoch: 4}) // the answer to a report that was sent before the call; hear reads it now
	slow.remember(5, known{at: layout.Location{Handle: a.space.First(0, 0), Version: 1}, epoch: 4})
	if k, ok := a.cached(5); ok {
		t.Errorf("a client that has confirmed epoch %d believes %+v", a.lease.confirmed, k)
	}
}
