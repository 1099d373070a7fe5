package plugin

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
)

// LoadRequest asks a host to load the keys 0 to Keys-1 in bulk. Without Records, the value of a key
// is the key plus 1. The tree must be empty.
type LoadRequest struct {
	Keys uint64 `json:"keys"`
	// Records is true if the values are to be those that workloads make, instead of numbers of 8
	// bytes.
	Records bool `json:"records,omitempty"`
}

type Loaded struct {
	Keys  uint64        `json:"keys"`
	Pages []int         `json:"pages"`
	Bytes uint64        `json:"bytes"`
	Took  time.Duration `json:"tookNs"`
}

func (n *node) load(r *http.Request, in LoadRequest) (out Loaded, err error) {
	t, servers, err := n.Known()
	if err != nil {
		return out, err
	}
	began := time.Now()
	err = n.Host.Do(r, "sherman load", func(ctx context.Context, v verbs.Context) error {
		cfg, err := n.Config(v, servers)
		if err != nil {
			return err
		}
		s, err := sherman.BulkLoad(config(cfg), cfg.Servers, in.feed(ctx, t.cfg.Value), v.Runtime().Now().Add(wholePatience))
		out.Keys, out.Pages, out.Bytes = s.Keys, s.Pages, s.Bytes
		return in.whole(ctx, s.Keys, err)
	})
	out.Took = time.Since(began)
	return out, store.HTTPError(err)
}

// feed returns a function that returns the keys with their values one after the other, until it has
// returned all or ctx ends. If in.Records is true, a value is made by kv.MakeValue and has `value`
// bytes; otherwise it has 8 bytes: the key plus one.
func (in LoadRequest) feed(ctx context.Context, value int) func() (uint64, []byte, bool) {
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

// whole returns the error with which the load has failed, or an error if ctx ended before all keys
// were loaded. keys is how many keys were loaded.
func (in LoadRequest) whole(ctx context.Context, keys uint64, failed error) error {
	if failed != nil || keys >= in.Keys {
		return failed
	}
	return fmt.Errorf("%d of %d keys are there: %w", keys, in.Keys, store.Ended(ctx, "load"))
}
