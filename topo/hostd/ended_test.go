package hostd

import (
	"context"
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// inserter counts keys, and ends its job after some of them.
type inserter struct {
	kv.Store
	keys  int
	ended func()
}

func (i *inserter) Insert(uint64, []byte, clock.Time) error {
	if i.keys++; i.keys == 4 {
		i.ended()
	}
	return nil
}

// A client that loads keys stops when its job is ended: by an interrupt, or with the application.
func TestLoadEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := &inserter{ended: cancel}
	for key := range uint64(10) {
		if err := (untilEnded{s, ctx}).Insert(key, nil, 0); key >= 4 && !errors.Is(err, context.Canceled) || key < 4 && err != nil {
			t.Errorf("key %d: %v", key, err)
		}
	}
	if s.keys != 4 {
		t.Errorf("%d keys", s.keys)
	}
}
