package sherman_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// A reader finds a leaf closed, and its sibling has not taken over its range. Before the reader reads
// the leaf again, a writer completes the move, so that the leaf ends at the cut, and closes the leaf
// once more to give other records away. The leaf does not cover the reader's key then.
func TestLeafThatIsClosedTwice(t *testing.T) {
	t.Run("get", func(t *testing.T) {
		// The READs: leaf, sibling, leaf.
		closedTwice(t, 3, func(c *sherman.Client, key uint64, rt verbs.Runtime) error {
			_, err := c.Get(key, nil, soon(rt))
			return err
		})
	})
	t.Run("scan", func(t *testing.T) {
		closedTwice(t, 4, func(c *sherman.Client, key uint64, rt verbs.Runtime) error {
			var keys []uint64
			err := c.Scan(key, 5, func(k uint64, _ []byte) bool { keys = append(keys, k); return true }, soon(rt))
			for i, k := range keys {
				if i == 0 && k != key || i > 0 && k <= keys[i-1] {
					err = errors.Join(err, fmt.Errorf("keys %d of a scan from %d", keys, key))
				}
			}
			if len(keys) == 0 {
				err = errors.Join(err, fmt.Errorf("a scan from %d finds nothing", key))
			}
			return err
		})
	})
}

// closedTwice runs look while the mover is between its steps. The reader's READ with number held
// waits until the leaf is closed for the second time.
func closedTwice(t *testing.T, held int, look func(c *sherman.Client, key uint64, rt verbs.Runtime) error) {
	t.Helper()
	g := newRig(t, simrack.Options{}, 28<<10)
	g.servers = g.servers[:1]
	g.format(sherman.FormatConfig{Shape: mergeShape, Locks: 64})
	// The times, in their order: the mover's tree is full, the reader's cache is warm, the leaf is closed, the
	// reader waits, the leaf is closed again, the reader has finished.
	var full, warm, closed, waits, again, done bool
	var left layout.Page
	var key uint64
	mover := g.Host("cn0")
	mover.Go("mover", false, func(ctx verbs.Context) {
		rt, headers, stage := ctx.Runtime(), 0, 0
		hook := func(wrs []verbs.SendWR) []verbs.SendWR {
			switch {
			case !warm:
				return wrs
			case headers == 1 && stage == 0:
				stage = 1
				until(rt, &closed, &waits)
			case headers == 3 && stage == 1:
				stage = 2
				until(rt, &again, &done)
			}
			if wrs[0].Op == verbs.OpWrite && len(wrs) == 2 && wrs[0].SGL[0].Length == layout.Line {
				headers++ // a header and the release of the lock: the leaf is closed, or shrinks
			}
			return wrs
		}
		c, err := g.node(sherman.NodeConfig{}).Open(sherman.Config{Context: bent{ctx, hook}, Manager: mover.Manager(ctx)}, soon(rt))
		for k := uint64(0); err == nil; k += 100 {
			err = c.Insert(k, value(k, 0), soon(rt))
		}
		if !errors.Is(err, kv.ErrFull) {
			t.Error(err)
			return
		}
		read := func(a layout.Addr) (p layout.Page) {
			b := make([]byte, mergeShape.Page)
			if err := errors.Join(c.ReadPage(a, b, soon(rt)), p.Parse(c.Super().Shape, b)); err != nil {
				t.Error(err)
			}
			return p
		}
		root, err := c.Root(soon(rt))
		if err != nil {
			t.Error(err)
			return
		}
		parent := read(root)
		for parent.Level > 1 {
			parent = read(parent.Leftmost)
		}
		record := func(p *layout.Page, i int) layout.Record {
			r, _ := p.Slot(int(p.Order(nil)[i]))
			return r
		}
		child := func(i int) layout.Page { r := record(&parent, i); return read(r.Child()) }
		left = child(2)
		right := child(3)
		for i := 1; i <= 5; i++ {
			if err := c.Delete(record(&right, i).Key, soon(rt)); err != nil {
				t.Error(err)
			}
		}
		key = record(&left, left.Count()-1).Key
		for full = true; !warm; rt.Sleep(time.Microsecond) {
		}
		for i := uint64(1); stage < 2 && i < 20; i++ {
			if err := c.Insert(left.Lowest+i, value(1, 0), soon(rt)); err != nil {
				t.Error(err)
			}
		}
		if stage < 2 {
			t.Error("the leaf was not closed twice")
		}
	})
	host := g.Host("cn1")
	host.Go("reader", false, func(ctx verbs.Context) {
		rt, reads := ctx.Runtime(), 0
		hook := func(wrs []verbs.SendWR) []verbs.SendWR {
			if closed && wrs[0].Op == verbs.OpRead {
				if reads++; reads == held {
					until(rt, &waits, &again)
				}
			}
			return wrs
		}
		c, err := g.node(sherman.NodeConfig{}).Open(sherman.Config{Context: bent{ctx, hook}, Manager: host.Manager(ctx)}, soon(rt))
		for ; err == nil && !full; rt.Sleep(time.Microsecond) {
		}
		if err == nil {
			_, err = c.Get(key, nil, soon(rt))
		}
		for warm = true; !closed; rt.Sleep(time.Microsecond) {
		}
		if err == nil {
			err = look(c, key, rt)
		}
		if err != nil {
			t.Errorf("key %d, which no client removes, after %d READs: %v", key, reads, err)
		}
		done = true
	})
	g.run()
}
