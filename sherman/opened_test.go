package sherman_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/audit"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// A client closes a sparse leaf and stops. Before another one goes on with the merge, others fill the
// leaf's sibling, which has no room for the records then: the leaf is opened again.
func TestTheSiblingOfASparseLeafIsFull(t *testing.T) {
	f := newFullSibling(t, region, mergeKeys)
	f.upsert("cn2", f.inside())
	f.intact()
}

// No memory is needed for that, at whatever request of it the next client dies: a full tree stays
// writable.
func TestTheSiblingOfASparseLeafAndTheTreeAreFull(t *testing.T) {
	n := 0
	for died := true; died && !t.Failed(); n++ {
		f := newFullSibling(t, 48<<10, layout.MaxKey)
		posted := 0
		h := f.Host("cn1")
		died = false
		f.withHook("cn1", func(rt verbs.Runtime, wrs []verbs.SendWR) {
			if wrs[0].Op != verbs.OpRead {
				if posted++; posted == n+1 {
					died = true
					h.Crash()
					rt.Sleep(time.Millisecond)
				}
			}
		}, func(c *sherman.Client, rt verbs.Runtime) error {
			if err := c.Upsert(f.inside(), value(f.inside(), 1), soon(rt)); !died {
				return err
			}
			return nil
		})
		f.run()
		f.upsert("cn2", f.inside())
		f.intact()
	}
	if n < 5 {
		t.Errorf("%d deaths", n-1)
	}
}

// A sibling that has refused the range of a closed leaf does not take it over when it has room
// again: another client may be about to open the leaf.
func TestARefusalStands(t *testing.T) {
	f := newFullSibling(t, region, mergeKeys)
	late, refused, room, decided := false, false, false, false
	swaps, headers := 0, 0
	f.withHook("cn1", func(rt verbs.Runtime, wrs []verbs.SendWR) { // has found no refusal, and is late
		if wrs[0].Op == verbs.OpCmpSwap {
			if swaps++; swaps == 2 { // the lock of the sibling
				until(rt, &late, &room)
			}
		}
	}, func(c *sherman.Client, rt verbs.Runtime) error {
		return c.Upsert(f.inside(), value(f.inside(), 1), soon(rt))
	})
	f.withHook("cn2", func(rt verbs.Runtime, wrs []verbs.SendWR) { // refuses, and is about to open the leaf
		if len(wrs) == 2 && wrs[0].Op == verbs.OpWrite && wrs[0].SGL[0].Length == layout.Line {
			if headers++; headers == 2 {
				until(rt, &refused, &decided)
			}
		}
	}, func(c *sherman.Client, rt verbs.Runtime) error {
		for !late {
			rt.Sleep(time.Microsecond)
		}
		return c.Upsert(f.inside()-1, value(f.inside()-1, 1), soon(rt))
	})
	f.client("cn3", f.node(lease), func(c *sherman.Client, rt verbs.Runtime) error {
		for !refused {
			rt.Sleep(time.Microsecond)
		}
		if err := f.makeRoom(c, rt, 6); err != nil {
			return err
		}
		room = true
		rt.Sleep(300 * time.Microsecond)
		decided = true
		return nil
	})
	f.run()
	f.want[f.inside()], f.want[f.inside()-1] = true, true
	f.intact()
}

// A client has found that the sibling of a closed leaf refuses, and is late. Meanwhile the leaf has
// been opened, and closed again, and the sibling has taken over its range.
func TestALeafIsNotOpenedForAFormerRefusal(t *testing.T) {
	f := newFullSibling(t, region, mergeKeys)
	late, merged, opened := false, false, false
	swaps, absorbed := 0, false
	f.withHook("cn1", func(rt verbs.Runtime, wrs []verbs.SendWR) {
		if wrs[0].Op == verbs.OpCmpSwap {
			if swaps++; swaps == 3 { // the lock of the leaf, to open it
				until(rt, &late, &merged)
			}
		}
	}, func(c *sherman.Client, rt verbs.Runtime) error {
		defer func() { opened = true }()
		return c.Upsert(f.inside(), value(f.inside(), 1), soon(rt))
	})
	f.withHook("cn2", func(rt verbs.Runtime, wrs []verbs.SendWR) {
		switch {
		case !late:
		case len(wrs) == 3: // copies of the records, header, release
			absorbed = true
		case absorbed && wrs[0].Op == verbs.OpCmpSwap && !merged:
			until(rt, &merged, &opened)
		}
	}, func(c *sherman.Client, rt verbs.Runtime) error {
		for !late {
			rt.Sleep(time.Microsecond)
		}
		k := f.inside() - 1
		if err := c.Upsert(k, value(k, 1), soon(rt)); err != nil {
			return err
		}
		f.want[k] = true
		err := f.makeRoom(c, rt, 9) // five are left
		for d := f.closed.Lowest; err == nil && d <= k && !absorbed; d++ {
			if f.want[d] {
				err = c.Delete(d, soon(rt))
				delete(f.want, d)
			}
		}
		if err == nil && !absorbed {
			err = errors.New("the leaf was not merged")
		}
		return err
	})
	f.run()
	f.want[f.inside()] = true
	f.intact()
}

// A reader has seen a leaf closed, which is opened again and split before the reader reads it a
// second time.
func TestAReaderOfALeafThatIsOpened(t *testing.T) {
	f := newFullSibling(t, region, mergeKeys)
	var key uint64 // the greatest of the leaf
	for k := range f.want {
		if k < f.closed.Highest {
			key = max(key, k)
		}
	}
	late, split, reads := false, false, -1
	f.withHook("cn1", func(rt verbs.Runtime, wrs []verbs.SendWR) {
		if reads >= 0 && wrs[0].Op == verbs.OpRead {
			if reads++; reads == 3 { // of the leaf, its sibling, the leaf
				until(rt, &late, &split)
			}
		}
	}, func(c *sherman.Client, rt verbs.Runtime) error {
		_, err := c.Get(key, nil, soon(rt)) // knows the leaf afterwards
		if reads = 0; err == nil {
			_, err = c.Get(key, nil, soon(rt))
		}
		return err
	})
	n := f.node(lease)
	f.client("cn2", n, func(c *sherman.Client, rt verbs.Runtime) error {
		defer func() { split = true }()
		for !late {
			rt.Sleep(time.Microsecond)
		}
		for k := key - 1; n.Stats().Splits == 0; k-- {
			if err := c.Insert(k, value(k, 1), soon(rt)); err != nil {
				return err
			}
			f.want[k] = true
		}
		return nil
	})
	f.run()
	f.intact()
}

// fullSibling is a tree with a closed leaf, whose client has died, and whose sibling is full.
type fullSibling struct {
	*rig
	closed layout.Header
	want   map[uint64]bool // the keys of the tree
}

var lease = sherman.NodeConfig{Lease: 5 * time.Millisecond}

// newFullSibling inserts the given number of keys, or as many as the tree has room for, before a leaf
// is closed.
func newFullSibling(t *testing.T, region int, keys uint64) *fullSibling {
	t.Helper()
	f := &fullSibling{rig: newRig(t, simrack.Options{}, region), want: map[uint64]bool{}}
	f.format(sherman.FormatConfig{Shape: mergeShape})
	h := f.Host("cn0")
	armed, closed, writes := false, false, 0
	h.Go("victim", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		stop := func(wrs []verbs.SendWR) []verbs.SendWR {
			if armed && len(wrs) == 2 && wrs[0].SGL[0].Length == layout.Line {
				writes++
			}
			if writes == 1 && wrs[0].Op == verbs.OpRead { // the leaf is closed
				closed = true
				h.Crash()
				rt.Sleep(time.Millisecond)
			}
			return wrs
		}
		c, err := f.node(sherman.NodeConfig{}).Open(sherman.Config{Context: bent{ctx, stop}, Manager: h.Manager(ctx)}, soon(rt))
		for k := uint64(0); k < keys && err == nil; k++ {
			err = c.Insert(100*k, value(k, 0), soon(rt))
		}
		if armed = true; errors.Is(err, kv.ErrFull) {
			err = nil
		}
		for k := uint64(40); k < mergeKeys && err == nil && !closed; k++ {
			if k%5 != 0 {
				err = c.Delete(100*k, soon(rt))
			}
		}
		if !closed {
			t.Errorf("no leaf was closed: %v", err)
		}
	})
	f.run()
	n := f.node(lease)
	f.client("cn2", n, func(c *sherman.Client, rt verbs.Runtime) (err error) {
		if f.closed, err = closedLeaf(c, rt); err != nil {
			return err
		}
		if err := c.Scan(0, 1<<20, func(k uint64, _ []byte) bool { f.want[k] = true; return true }, soon(rt)); err != nil {
			return err
		}
		for k := f.closed.Highest; ; k++ { // these keys are the sibling's
			var p layout.Page
			b := make([]byte, mergeShape.Page)
			if err = c.ReadPage(f.closed.Sibling, b, soon(rt)); err == nil {
				err = p.Parse(c.Super().Shape, b)
			}
			if err != nil || p.Count() == p.Slots() {
				break
			}
			if err = c.Upsert(k, value(k, 1), soon(rt)); err != nil {
				break
			}
			f.want[k] = true
		}
		rep, broken := whole(c, rt, -1)
		if broken != nil || rep.Closed != 1 || n.Stats().Splits > 0 {
			err = errors.Join(err, fmt.Errorf("the sibling is full: %d splits, %v %w", n.Stats().Splits, rep, broken))
		}
		return err
	})
	f.run()
	return f
}

// inside returns a key of the closed leaf that the tree does not have.
func (f *fullSibling) inside() uint64 { return f.closed.Highest - 1 }

// upsert writes a key.
func (f *fullSibling) upsert(host string, key uint64) {
	f.client(host, f.node(lease), func(c *sherman.Client, rt verbs.Runtime) error {
		return c.Upsert(key, value(key, 1), soon(rt))
	})
	f.run()
	f.want[key] = true
}

// makeRoom deletes keys of the sibling.
func (f *fullSibling) makeRoom(c *sherman.Client, rt verbs.Runtime, n int) error {
	for k := f.closed.Highest + 1; n > 0; k++ {
		if !f.want[k] {
			continue
		}
		if err := c.Delete(k, soon(rt)); err != nil {
			return fmt.Errorf("delete of key %d: %w", k, err)
		}
		delete(f.want, k)
		n--
	}
	return nil
}

// withHook starts a client; hook sees the requests that it posts after it has been opened.
func (f *fullSibling) withHook(host string, hook func(rt verbs.Runtime, wrs []verbs.SendWR), run func(c *sherman.Client, rt verbs.Runtime) error) {
	h, n := f.Host(host), f.node(lease)
	h.Go("client", false, func(ctx verbs.Context) {
		rt, armed := ctx.Runtime(), false
		post := func(wrs []verbs.SendWR) []verbs.SendWR {
			if armed {
				hook(rt, wrs)
			}
			return wrs
		}
		c, err := n.Open(sherman.Config{Context: bent{ctx, post}, Manager: h.Manager(ctx)}, soon(rt))
		if armed = true; err == nil {
			err = run(c, rt)
		}
		if err != nil {
			f.t.Errorf("client of %s: %v", host, err)
		}
	})
}

// until sets begun and waits for over.
func until(rt verbs.Runtime, begun, over *bool) {
	for *begun = true; !*over; {
		rt.Sleep(time.Microsecond)
	}
}

// intact checks the tree and that it has the wanted keys.
func (f *fullSibling) intact() {
	f.t.Helper()
	f.client("cn2", f.node(lease), func(c *sherman.Client, rt verbs.Runtime) error {
		for k := range f.want {
			if _, err := c.Get(k, nil, soon(rt)); err != nil {
				return fmt.Errorf("key %d: %w", k, err)
			}
		}
		rep, err := whole(c, rt, -1)
		if err == nil && (rep.Closed != 0 || rep.Content.Keys != uint64(len(f.want))) {
			err = fmt.Errorf("want %d keys: %v", len(f.want), rep)
		}
		return err
	})
	f.run()
}

// closedLeaf returns the header of the closed leaf.
func closedLeaf(c *sherman.Client, rt verbs.Runtime) (h layout.Header, err error) {
	cfg, err := audit.Config(c, soon(rt))
	if err != nil {
		return h, err
	}
	s, b := c.Super(), make([]byte, c.Super().Shape.Page)
	var p layout.Page
	for server := range s.Servers {
		for at := s.FirstChunk(); at < cfg.Ends[server]; at += uint64(s.Shape.Page) {
			if err := cfg.Read(layout.At(server, at), b); err != nil {
				return h, err
			}
			if p.Parse(s.Shape, b) == nil && p.Stage == layout.Closed {
				return p.Header, nil
			}
		}
	}
	return h, errors.New("no page is closed")
}
