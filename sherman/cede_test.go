package sherman_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/topo/simrack"
)

// At whatever request a client dies that makes room in a full tree, by moving records to the right
// and to the left, no key is lost, none occurs twice, and the next clients go on.
func TestDeathWhileRecordsMove(t *testing.T) {
	first := deathWhileRecordsMove(t, -1, 0)
	deaths := 0
	for n := 0; !t.Failed(); n++ {
		if deathWhileRecordsMove(t, n, first) == 0 {
			break
		}
		deaths++
	}
	if deaths < 60 {
		t.Errorf("%d deaths", deaths)
	}
}

// deathWhileRecordsMove kills a client that fills a tree when it is about to post its n-th request
// with a WRITE since it has inserted first keys. It returns whether it did, as 1 or 0. With n -1 it
// returns how many keys the client has inserted when the first records move.
func deathWhileRecordsMove(t *testing.T, n, first int) (result int) {
	const after = 25 // inserts that move records, most of them to the left: all leaves to the right are full
	g := newRig(t, simrack.Options{}, 24<<10)
	g.format(sherman.FormatConfig{Shape: mergeShape, Locks: 64})
	h := g.Host("cn0")
	inserted, over := map[uint64]error{}, false
	h.Go("victim", false, func(ctx verbs.Context) {
		rt, writes := ctx.Runtime(), -1
		fresh, moves := false, false // a header without a new page before it is not that of a split
		dying := func(wrs []verbs.SendWR) []verbs.SendWR {
			if n := int(wrs[0].SGL[0].Length); wrs[0].Op == verbs.OpWrite && n == mergeShape.Page {
				fresh = true
			} else if wrs[0].Op == verbs.OpWrite && n == layout.Line && len(wrs) > 1 {
				fresh, moves = false, moves || !fresh
			}
			if writes >= 0 && wrs[0].Op == verbs.OpWrite {
				if writes++; writes == 2*n+1 {
					result, over = 1, true
					h.Crash()
					rt.Sleep(time.Millisecond)
				}
			}
			return wrs
		}
		r := rand.New(rand.NewPCG(5, 6))
		c, err := g.node(sherman.NodeConfig{}).Open(sherman.Config{Context: bent{ctx, dying}, Manager: h.Manager(ctx)}, soon(rt))
		for i := 0; err == nil && (n < 0 || i < first+after); i++ {
			if n < 0 && moves {
				result = i
				break
			}
			if n >= 0 && i == first {
				writes = 0
			}
			k := r.Uint64N(1 << 20)
			if i > first && n >= 0 {
				k = 1<<20 - k>>4 // near the right end
			}
			inserted[k] = kv.ErrTimeout // until it is acknowledged
			err = c.Insert(k, value(k, 0), soon(rt))
			if inserted[k] = err; errors.Is(err, kv.ErrExists) || errors.Is(err, kv.ErrFull) {
				err = nil
			}
		}
		if over = true; err != nil && result == 0 {
			t.Error(err)
		}
	})
	g.client("cn2", g.node(sherman.NodeConfig{Lease: 5 * time.Millisecond}), func(c *sherman.Client, rt verbs.Runtime) error {
		for ; !over; rt.Sleep(time.Microsecond) {
		}
		scanned := map[uint64]bool{}
		if err := c.Scan(0, 1<<20, func(k uint64, _ []byte) bool { scanned[k] = true; return true }, soon(rt)); err != nil {
			return err
		}
		var keys uint64
		for k, was := range inserted {
			v, err := c.Get(k, nil, soon(rt))
			switch {
			case err != nil && !errors.Is(err, kv.ErrNotFound):
				return fmt.Errorf("death at WRITE %d: key %d: %w", 2*n+1, k, err)
			case (err == nil) != scanned[k]:
				return fmt.Errorf("death at WRITE %d: key %d: %w, and a scan says %t", 2*n+1, k, err, scanned[k])
			case err != nil && (was == nil || errors.Is(was, kv.ErrExists)):
				return fmt.Errorf("death at WRITE %d: key %d is lost", 2*n+1, k)
			case err == nil && string(v) != string(value(k, 0)):
				return fmt.Errorf("death at WRITE %d: key %d has %x", 2*n+1, k, v)
			}
			if err == nil {
				keys++
				if err := c.Put(k, value(k, 0), soon(rt)); err != nil { // finds what is closed
					return err
				}
			}
		}
		rep, err := whole(c, rt, -1)
		if err == nil && (rep.Closed > 1 || rep.Content.Keys != keys) {
			err = fmt.Errorf("death at WRITE %d: %d keys: %v", 2*n+1, keys, rep)
		}
		return err
	})
	g.run()
	return result
}
