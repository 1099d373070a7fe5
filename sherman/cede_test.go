package sherman_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
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
	if t.Logf("%d deaths", deaths); deaths < 150 {
		t.Errorf("%d deaths", deaths)
	}
}

// deathWhileRecordsMove kills a client that fills a tree at the n-th place since it has inserted
// first keys. The places are before each post that begins with a WRITE or a CAS, and behind each
// request of a chain but the last. It returns whether it did, as 1 or 0. With n -1 it returns how
// many keys the client has inserted when the first records move.
func deathWhileRecordsMove(t *testing.T, n, first int) (result int) {
	const after = 16 // inserts that move records, most of them to the left: all leaves to the right are full
	g := newRig(t, simrack.Options{}, 24<<10)
	g.format(sherman.FormatConfig{Shape: mergeShape, Locks: 64})
	h := g.Host("cn0")
	inserted, over := map[uint64]error{}, false
	h.Go("victim", false, func(ctx verbs.Context) {
		rt, places := ctx.Runtime(), -1
		fresh, moves := false, false // a header without a new page before it is not that of a split
		dying := func(wrs []verbs.SendWR) []verbs.SendWR {
			if n := int(wrs[0].SGL[0].Length); wrs[0].Op == verbs.OpWrite && n == mergeShape.Page {
				fresh = true
			} else if wrs[0].Op == verbs.OpWrite && n == layout.Line && len(wrs) > 1 {
				fresh, moves = false, moves || !fresh
			}
			if places < 0 || over || wrs[0].Op == verbs.OpRead {
				return wrs
			}
			at := n - places
			places += len(wrs)
			switch {
			case at == 0:
				result, over = 1, true
				h.Crash()
				rt.Sleep(time.Millisecond)
			case at < len(wrs):
				result, over = 1, true
				g.At(rt.Now(), h.Crash) // when the NIC has sent the first requests
				return wrs[:at]
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
				places = 0
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
		scanned, last := map[uint64]bool{}, uint64(0)
		err := c.Scan(0, 1<<20, func(k uint64, _ []byte) bool {
			if len(scanned) > 0 && k <= last {
				t.Errorf("death at place %d: a scan comes to key %d after %d", n, k, last)
			}
			scanned[k], last = true, k
			return true
		}, soon(rt))
		if err != nil {
			return err
		}
		var keys uint64
		for k, was := range inserted {
			v, err := c.Get(k, nil, soon(rt))
			switch {
			case err != nil && !errors.Is(err, kv.ErrNotFound):
				return fmt.Errorf("death at place %d: key %d: %w", n, k, err)
			case (err == nil) != scanned[k]:
				return fmt.Errorf("death at place %d: key %d: %w, and a scan says %t", n, k, err, scanned[k])
			case err != nil && (was == nil || errors.Is(was, kv.ErrExists)):
				return fmt.Errorf("death at place %d: key %d is lost", n, k)
			case err == nil && string(v) != string(value(k, 0)):
				return fmt.Errorf("death at place %d: key %d has %x", n, k, v)
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
			err = fmt.Errorf("death at place %d: %d keys: %v", n, keys, rep)
		}
		return err
	})
	g.run()
	return result
}
