package hostd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/audit"
	"github.com/rdmalab/rdmalab/sherman/check"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// TreeCheck asks for a check of a tree: first a history of so many clients on this host, if there are any, then the structure.
type TreeCheck struct {
	// Clients, Rounds of each, Keys they share, from Base on; Seed makes the operations.
	Clients int    `json:"clients,omitempty"`
	Rounds  int    `json:"rounds,omitempty"`
	Keys    int    `json:"keys,omitempty"`
	Base    uint64 `json:"base,omitempty"`
	Seed    uint64 `json:"seed,omitempty"`
	// Unreachable and HalfSplits are how many pages interrupted splits may have left; negative: any number.
	Unreachable int `json:"unreachable"`
	HalfSplits  int `json:"halfSplits"`
	// DeadLocks is how many locks may have owners that are gone; negative: any number.
	DeadLocks int `json:"deadLocks"`
}

// TreeVerdict is what came out.
type TreeVerdict struct {
	// History is that of the clients; nil: there were none.
	History *StoreVerdict `json:"history,omitempty"`
	// Tree is what was read, nil if memory is gone; Why is what is wrong with it; "": nothing.
	Tree *check.Report `json:"tree,omitempty"`
	Why  string        `json:"why,omitempty"`
	Took time.Duration `json:"tookNs"`
}

// treePatience bounds the reading of a whole tree.
const treePatience = 10 * time.Minute

// checkTree makes a history, decides about it, and reads the tree.
func (h *Host) checkTree(r *http.Request, in TreeCheck) (out TreeVerdict, err error) {
	if in.Clients < 0 || in.Clients > maxCheckClients || in.Clients > 0 && (in.Rounds < 1 || in.Rounds > maxCheckRounds || in.Keys < 1) {
		return out, control.Errorf(http.StatusBadRequest, "%d clients, %d rounds, %d keys: want at most %d clients and 1 to %d rounds",
			in.Clients, in.Rounds, in.Keys, maxCheckClients, maxCheckRounds)
	}
	if in.Clients > 0 {
		if out.History, err = h.treeHistory(r, in); err != nil {
			return out, err
		}
	}
	began := time.Now()
	err = h.withTree(r, "check", func(_ *tree, c *sherman.Client, rt verbs.Runtime) error {
		cfg, err := audit.Config(c, rt.Now().Add(treePatience))
		if err == nil {
			cfg.Unreachable, cfg.HalfSplits, cfg.DeadLocks = in.Unreachable, in.HalfSplits, in.DeadLocks
			out.Tree, err = check.Check(cfg)
		}
		if errors.Is(err, kv.ErrLost) { // what clients were told has its verdict for all that
			out.Tree, out.Why = nil, err.Error()
			return nil
		}
		if err != nil {
			return err
		}
		if bad := out.Tree.Err(); bad != nil {
			out.Why = bad.Error()
		}
		return nil
	})
	out.Took = time.Since(began)
	return out, err
}

// treeRun is a history of a tree in the making.
type treeRun struct {
	*checkRun
	in   TreeCheck
	keys []uint64
}

func (h *Host) treeHistory(r *http.Request, in TreeCheck) (*StoreVerdict, error) {
	t, err := h.theTree()
	if err != nil {
		return nil, err
	}
	out := new(StoreVerdict)
	began := time.Now()
	err = h.app.do(r, "sherman check", func(ctx context.Context, v verbs.Context) error {
		c := &treeRun{checkRun: newCheckRun(ctx, v), in: in}
		for i := range in.Keys {
			c.keys = append(c.keys, in.Base+uint64(i))
		}
		conf := h.treeClient(v)
		var err error
		*out, err = c.run(in.Clients, func(id int) error { return c.client(t.node, conf, id) })
		return err
	})
	out.Took = time.Since(began)
	return out, storeStatus(err)
}

func (c *treeRun) client(n *sherman.Node, conf sherman.Config, id int) error {
	s, err := n.Open(conf, c.rt.Now().Add(joinPatience))
	if err != nil {
		return fmt.Errorf("client %d: %w; is the tree there? `rdmalab sherman start`", id, err)
	}
	rec := kv.Record(s, c.history, id, c.rt.Now)
	if s.MaxValue() < kv.MinValue {
		return errors.Join(control.Errorf(http.StatusConflict, "a history needs values of %d bytes, the tree has %d; start it with --value %d --fresh",
			kv.MinValue, s.MaxValue(), kv.MinValue), s.Close())
	}
	rnd := rand.New(rand.NewPCG(c.in.Seed, uint64(id)))
	for range c.in.Rounds {
		if c.ctx.Err() != nil {
			break
		}
		err := c.round(rec, rnd, s.MaxValue())
		if errors.Is(err, kv.ErrValue) || errors.Is(err, kv.ErrScan) || errors.Is(err, kv.ErrClosed) || errors.Is(err, verbs.ErrClosed) ||
			errors.Is(err, sherman.ErrBroken) {
			return errors.Join(err, s.Close())
		}
	}
	return errors.Join(rec.Err(), s.Close())
}

// round makes one operation: half of them read, most others write, some insert, delete and scan.
func (c *treeRun) round(s *kv.Recorded, r *rand.Rand, size int) error {
	key := c.keys[r.IntN(len(c.keys))]
	deadline := c.rt.Now().Add(checkPatience)
	var err error
	switch x := r.Float64(); {
	case x < 0.45:
		_, err = s.Get(key, nil, deadline)
	case x < 0.75:
		err = s.Put(key, s.Value(key, size), deadline)
		if errors.Is(err, kv.ErrNotFound) {
			err = s.Insert(key, s.Value(key, size), deadline)
		}
	case x < 0.9:
		err = s.Insert(key, s.Value(key, size), deadline)
	case x < 0.94:
		err = s.Scan(c.keys, key, 1+r.IntN(len(c.keys)), deadline)
	default:
		err = s.Delete(key, deadline)
	}
	return c.counted(s, err)
}

// TreeLoad asks for keys in bulk: 1 to Keys, each with its number as value. The tree must be empty.
type TreeLoad struct {
	Keys uint64 `json:"keys"`
	// Records makes values as workloads do, in place of 8 bytes.
	Records bool `json:"records,omitempty"`
}

// TreeLoaded is what was made.
type TreeLoaded struct {
	Keys  uint64        `json:"keys"`
	Pages []int         `json:"pages"`
	Bytes uint64        `json:"bytes"`
	Took  time.Duration `json:"tookNs"`
}

// loadTree fills an empty tree.
func (h *Host) loadTree(r *http.Request, in TreeLoad) (out TreeLoaded, err error) {
	t, err := h.theTree()
	if err != nil {
		return out, err
	}
	began := time.Now()
	err = h.app.do(r, "sherman load", func(ctx context.Context, v verbs.Context) error {
		s, err := sherman.BulkLoad(h.treeClient(v), t.addrs, in.feed(ctx, t.cfg.Value), v.Runtime().Now().Add(treePatience))
		out.Keys, out.Pages, out.Bytes = s.Keys, s.Pages, s.Bytes
		return errors.Join(err, in.whole(ctx, s.Keys))
	})
	out.Took = time.Since(began)
	return out, storeStatus(err)
}

// feed gives the keys one after the other, with values of so many bytes if they are records, until all are given or the job is ended.
func (in TreeLoad) feed(ctx context.Context, value int) func() (uint64, []byte, bool) {
	key := uint64(0)
	return func() (uint64, []byte, bool) {
		k := key
		key++
		if in.Records {
			return k, kv.MakeValue(k, k, value), k < in.Keys && ctx.Err() == nil
		}
		return k, binary.LittleEndian.AppendUint64(nil, k+1), k < in.Keys && ctx.Err() == nil
	}
}

// whole says that not all keys are there since the job was ended; nil: they are.
func (in TreeLoad) whole(ctx context.Context, keys uint64) error {
	if keys >= in.Keys {
		return nil
	}
	return fmt.Errorf("%d of %d keys are there: %w", keys, in.Keys, ended(ctx, "load"))
}
