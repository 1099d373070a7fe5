package client

import (
	"context"
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
)

// generation is the clients of one of several stores, of which now is there.
type generation struct {
	mine   int
	now    *int
	closed *int
}

func (g generation) Open(clock.Time) (kv.Store, error) {
	if g.mine != *g.now {
		return nil, kv.ErrLost
	}
	return kv.NewMap(9), nil
}

func (g generation) Close() error { *g.closed++; return nil }

// A store without server that was made again is found again, once for all clients; one with a server
// is not.
func TestReplacedStoreIsFoundAgain(t *testing.T) {
	for _, replaced := range []bool{true, false} {
		now, closed, finds := 1, 0, 0
		away := errors.New("no host answers")
		l := &members{replaced: replaced, find: func(context.Context) (store.Clients, error) {
			if finds++; now == 0 {
				return nil, away
			}
			return generation{now, &now, &closed}, nil
		}}
		if err := l.search(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			now, finds int
			want       error
		}{{1, 1, nil}, {2, 2, nil}, {2, 2, nil}, {0, 3, away}, {3, 4, nil}} {
			want, searches := c.want, c.finds
			if !replaced {
				searches = 1
				if want = nil; c.now != 1 {
					want = kv.ErrLost
				}
			}
			now = c.now
			if _, err := l.Open(clock.Never); !errors.Is(err, want) || finds != searches {
				t.Errorf("replaced %v, store %d: %v, %d searches; want %v, %d", replaced, now, err, finds, want, searches)
			}
		}
		if err := l.Close(); err != nil || replaced && closed != 3 || !replaced && closed != 1 {
			t.Errorf("%d of the found stores were closed, %v", closed, err)
		}
	}
}
