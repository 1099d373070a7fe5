package clover

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
)

// A client does not remember a location that an operation has found in an epoch that has ended
// meanwhile: it has confirmed that it knows no location of that epoch.
func TestNothingIsRememberedOverAnEpoch(t *testing.T) {
	own := NewCache(4)
	c := (&finder{session: &session{own: own}, cache: own}).client()
	c.session.lease.epoch = 2
	at := layout.Location{Handle: 3, Version: 1}
	c.finder.remember(7, known{at: at, epoch: 1})
	if k, ok := c.finder.cache.get(7); ok {
		t.Errorf("remembered: %+v", k)
	}
	c.finder.remember(7, known{at: at, epoch: 2})
	if k, ok := c.finder.cache.get(7); !ok || k.at != at {
		t.Errorf("not remembered: %+v", k)
	}
	if c.session.renew(0, &rpc.Answer{Epoch: 3}); len(c.finder.cache.m) > 0 {
		t.Errorf("remembered in the next epoch: %+v", c.finder.cache.m)
	}
}

// Clients that share a cache use what one of them has found, unless they are in another epoch, or
// know another generation of the memory in which the node is.
func TestSharedCache(t *testing.T) {
	shared := NewCache(0)
	open := func(epoch uint32, generation uint64) *Client {
		c := (&finder{session: &session{cfg: Config{Cache: shared}}, cache: shared}).client()
		c.session.lease.epoch = epoch
		c.session.space = layout.Space{Servers: 1, Shortcuts: 4, Entries: layout.Counts{8}}
		c.session.servers = []server{{generation: generation}}
		return c
	}
	a := open(2, 7)
	at := layout.Location{Handle: a.session.space.First(0, 0), Version: 1}
	a.finder.remember(5, known{at: at, epoch: 2})
	if k, ok := open(2, 7).finder.cached(5); !ok || k.at != at {
		t.Errorf("the other client knows %+v", k)
	}
	for _, other := range []*Client{open(3, 7), open(1, 7), open(2, 8)} {
		if k, ok := other.finder.cached(5); ok {
			t.Errorf("a client of epoch %d and generation %d believes %+v", other.session.lease.epoch, other.session.servers[0].generation, k)
		}
	}
	after := open(2, 7)
	after.session.lease.incarnation = 1
	if k, ok := after.finder.cached(5); ok {
		t.Errorf("a client of the next metadata server believes %+v", k)
	}
	for _, incarnation := range []uint32{1, 0} { // a client of the next one has it, then one that lags behind
		c := open(2, 7)
		c.session.lease.incarnation = incarnation
		c.finder.remember(6, known{at: at, epoch: 2, incarnation: 0})
		if _, ok := c.finder.cached(6); ok != (incarnation == 0) {
			t.Errorf("a client of metadata server %d remembers what it has found with number 0: %v", incarnation, ok)
		}
	}
	after.session.forgetLocations()
	if _, ok := a.finder.cached(5); !ok {
		t.Error("a client that arrives empties the shared cache")
	}
	own := open(2, 7)
	own.session.cfg.Cache, own.finder.cache = nil, NewCache(4)
	own.Learn(a)
	if k, ok := own.finder.cached(5); !ok || k.at != at {
		t.Errorf("learnt %+v", k)
	}
}
