package clover

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
)

// A client does not remember a location that an operation has found in an epoch that has ended
// meanwhile: it has confirmed that it knows no location of that epoch.
func TestNothingIsRememberedOverAnEpoch(t *testing.T) {
	c := new(Client)
	c.cache = NewCache(4)
	c.lease.epoch = 2
	at := layout.Location{Handle: 3, Version: 1}
	c.remember(7, known{at: at, epoch: 1})
	if k, ok := c.cache.get(7); ok {
		t.Errorf("remembered: %+v", k)
	}
	c.remember(7, known{at: at, epoch: 2})
	if k, ok := c.cache.get(7); !ok || k.at != at {
		t.Errorf("not remembered: %+v", k)
	}
	if c.renew(0, &rpc.Answer{Epoch: 3}); len(c.cache.m) > 0 {
		t.Errorf("remembered in the next epoch: %+v", c.cache.m)
	}
}

// Clients that share a cache use what one of them has found, unless they are in another epoch, or
// know another generation of the memory in which the node is.
func TestSharedCache(t *testing.T) {
	shared := NewCache(0)
	open := func(epoch uint32, generation uint64) *Client {
		c := new(Client)
		c.cfg.Cache, c.cache, c.lease.epoch = shared, shared, epoch
		c.space = layout.Space{Servers: 1, Shortcuts: 4, Entries: layout.Counts{8}}
		c.servers = []server{{generation: generation}}
		return c
	}
	a := open(2, 7)
	at := layout.Location{Handle: a.space.First(0, 0), Version: 1}
	a.remember(5, known{at: at, epoch: 2})
	if k, ok := open(2, 7).cached(5); !ok || k.at != at {
		t.Errorf("the other client knows %+v", k)
	}
	for _, other := range []*Client{open(3, 7), open(1, 7), open(2, 8)} {
		if k, ok := other.cached(5); ok {
			t.Errorf("a client of epoch %d and generation %d believes %+v", other.lease.epoch, other.servers[0].generation, k)
		}
	}
	after := open(2, 7)
	after.lease.incarnation = 1
	if k, ok := after.cached(5); ok {
		t.Errorf("a client of the next metadata server believes %+v", k)
	}
	for _, incarnation := range []uint32{1, 0} { // a client of the next one has it, then one that lags behind
		c := open(2, 7)
		c.lease.incarnation = incarnation
		c.remember(6, known{at: at, epoch: 2, incarnation: 0})
		if _, ok := c.cached(6); ok != (incarnation == 0) {
			t.Errorf("a client of metadata server %d remembers what it has found with number 0: %v", incarnation, ok)
		}
	}
	after.forgetLocations()
	if _, ok := a.cached(5); !ok {
		t.Error("a client that arrives empties the shared cache")
	}
	own := open(2, 7)
	own.cfg.Cache, own.cache = nil, NewCache(4)
	own.Learn(a)
	if k, ok := own.cached(5); !ok || k.at != at {
		t.Errorf("learnt %+v", k)
	}
}
