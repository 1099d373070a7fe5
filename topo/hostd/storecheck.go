package hostd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// PathStoreCheck is POST StoreCheck: StoreVerdict; the host's clients make a history of a store.
const PathStoreCheck = "/store/check"

// StoreCheck asks for a history.
type StoreCheck struct {
	// Meta is the name of the metadata server's host.
	Meta string `json:"meta"`
	// Clients on this host, Rounds of each, Keys they share; values have Value bytes.
	Clients int `json:"clients"`
	Rounds  int `json:"rounds"`
	Keys    int `json:"keys"`
	Value   int `json:"value"`
	// Base is added to the keys, so that several checks do not meet.
	Base uint64 `json:"base"`
	Seed uint64 `json:"seed"`
	// Share is how many clients share a queue pair to each memory server; 0 or 1: each has its own.
	Share int `json:"share,omitempty"`
	// Loss says that memory may be lost meanwhile: keys may answer that they are.
	Loss bool `json:"loss,omitempty"`
}

// StoreVerdict is what came out.
type StoreVerdict struct {
	Operations int `json:"operations"`
	// Unknown ended without an answer; Lost said that the memory is gone.
	Unknown int           `json:"unknown"`
	Lost    int           `json:"lost"`
	Took    time.Duration `json:"tookNs"`
	// Linearizable says that one order of all operations on each key explains every answer; else Why.
	Linearizable bool   `json:"linearizable"`
	Why          string `json:"why,omitempty"`
}

// checkStore makes a history and decides about it.
func (h *Host) checkStore(r *http.Request, in StoreCheck) (out StoreVerdict, err error) {
	addr, err := h.address(in.Meta)
	if err = errors.Join(err, checkShare(in.Share)); err != nil {
		return out, err
	}
	if in.Clients < 1 || in.Clients > maxCheckClients || in.Rounds < 1 || in.Rounds > maxCheckRounds || in.Keys < 1 {
		return out, control.Errorf(http.StatusBadRequest, "%d clients, %d rounds, %d keys: want 1 to %d clients and 1 to %d rounds",
			in.Clients, in.Rounds, in.Keys, maxCheckClients, maxCheckRounds)
	}
	began := time.Now()
	err = h.app.do(r, "clover check", func(ctx context.Context, v verbs.Context) error {
		c := &cloverRun{checkRun: newCheckRun(ctx, v), in: in}
		if in.Loss {
			c.history.Loss(c.rt.Now())
		}
		o := &cloverOpener{cfg: clover.Config{Context: v, Manager: h.conn, Meta: addr, MaxValue: max(in.Value, kv.MinValue)}, share: in.Share}
		out, err = c.run(in.Clients, func(id int) error { return c.client(o, id) })
		return errors.Join(err, o.close())
	})
	out.Took = time.Since(began)
	return out, storeStatus(err)
}

// cloverRun is a history of the store in the making.
type cloverRun struct {
	*checkRun
	in StoreCheck
}

func (c *cloverRun) client(o *cloverOpener, id int) error {
	s, err := o.open(c.rt.Now().Add(checkPatience))
	if err != nil {
		return fmt.Errorf("client %d: %w; is the store up? `rdmalab clover start`", id, err)
	}
	rec := kv.Record(s, c.history, id, c.rt.Now)
	r := rand.New(rand.NewPCG(c.in.Seed, uint64(id)))
	for range c.in.Rounds {
		if c.ctx.Err() != nil {
			break
		}
		err := c.round(rec, r)
		if errors.Is(err, kv.ErrValue) || errors.Is(err, kv.ErrClosed) || errors.Is(err, verbs.ErrClosed) {
			return errors.Join(err, s.Close())
		}
	}
	return errors.Join(rec.Err(), s.Close())
}

// round makes one operation: half of them read, most others write, some insert and delete.
func (c *cloverRun) round(s *kv.Recorded, r *rand.Rand) error {
	key := c.in.Base + r.Uint64N(uint64(c.in.Keys))
	deadline := c.rt.Now().Add(checkPatience)
	var err error
	switch x := r.Float64(); {
	case x < 0.5:
		_, err = s.Get(key, nil, deadline)
	case x < 0.9:
		err = s.Put(key, s.Value(key, c.in.Value), deadline)
		if errors.Is(err, kv.ErrNotFound) || errors.Is(err, kv.ErrLost) {
			err = s.Insert(key, s.Value(key, c.in.Value), deadline)
		}
	case x < 0.96:
		err = s.Insert(key, s.Value(key, c.in.Value), deadline)
	default:
		err = s.Delete(key, deadline)
	}
	return c.counted(s, err)
}
