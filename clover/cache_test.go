package clover

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
)

// A location that an operation has found in an epoch that has ended meanwhile is not remembered:
// the metadata server does not wait for that client.
func TestNothingIsRememberedOverAnEpoch(t *testing.T) {
	c := new(Client)
	c.cache = newCache(4)
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
