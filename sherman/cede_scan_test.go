package sherman_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A client dies between the split of a leaf and the separator of the new leaf. Later no page is left,
// and the first of these two leaves is full and gives records to the second one; the client that moves
// them is late with the last step. Meanwhile another client comes from the first leaf to the second
// one, adds the separator, which is the cut by now, and writes a record that has moved. A node whose
// index cache does not know this separator reads what was written, although the first leaf is closed
// and has a former copy of the record.
func TestAClosedLeafHasFormerRecordsFromItsCutOn(t *testing.T) {
	f := &fullSibling{rig: newRig(t, simrack.Options{}, 28<<10)}
	f.servers = f.servers[:1]
	f.format(sherman.FormatConfig{Shape: mergeShape, Locks: 64})
	r := rand.New(rand.NewPCG(8, 3))

	armed, split, died := false, false, false
	f.withHook("cn0", func(rt verbs.Runtime, wrs []verbs.SendWR) {
		switch {
		case !armed:
		case wrs[0].Op == verbs.OpWrite && int(wrs[0].SGL[0].Length) == mergeShape.Page:
			split = true
		case wrs[0].Op == verbs.OpCmpSwap && split: // the lock of the parent
			died = true
			f.Host("cn0").Crash()
			rt.Sleep(time.Millisecond)
		}
	}, func(c *sherman.Client, rt verbs.Runtime) (err error) {
		for n := 0; err == nil && !died; n++ {
			k := r.Uint64N(1 << 16)
			if armed = n >= 150; armed {
				k |= 1 << 15
			}
			err = c.Upsert(k, value(k, 0), soon(rt))
		}
		if died {
			err = nil
		}
		return err
	})
	f.run()

	// Another client takes all pages that are left; the first records that it moves are far from the
	// two leaves.
	var left, right layout.Page
	fresh, full := false, false
	f.withHook("cn1", func(_ verbs.Runtime, wrs []verbs.SendWR) {
		switch n := int(wrs[0].SGL[0].Length); {
		case wrs[0].Op != verbs.OpWrite:
		case n == mergeShape.Page:
			fresh = true
		case n == layout.Line && len(wrs) == 2:
			full, fresh = full || !fresh, false // a header alone is not that of a split
		}
	}, func(c *sherman.Client, rt verbs.Runtime) (err error) {
		for left, right, err = unnamed(c, rt); err == nil && !full; {
			k := r.Uint64N(left.Lowest / 2)
			err = c.Upsert(k, value(k, 0), soon(rt))
		}
		return err
	})
	f.run()
	if t.Failed() {
		return
	}
	first, _ := right.Slot(int(right.Order(nil)[0]))

	var cut uint64
	warm, moved, late, written, over := false, false, false, false, false
	f.withHook("cn1", func(rt verbs.Runtime, wrs []verbs.SendWR) {
		switch {
		case wrs[0].Op == verbs.OpWrite && len(wrs) == 3: // copies of the records, header, release
			moved = true
		case moved && wrs[0].Op == verbs.OpCmpSwap && !late: // the lock of the leaf, to open it
			until(rt, &late, &over)
		}
	}, func(c *sherman.Client, rt verbs.Runtime) (err error) {
		for ; !warm; rt.Sleep(time.Microsecond) {
		}
		for k := left.Lowest + 1; err == nil && !late; k++ {
			err = c.Upsert(k, value(k, 0), soon(rt))
		}
		late = true // also after an error
		return err
	})
	f.client("cn2", f.node(lease), func(c *sherman.Client, rt verbs.Runtime) error {
		defer func() { written = true }()
		for ; !late; rt.Sleep(time.Microsecond) {
		}
		was, err := page(c, left.Self, rt)
		if cut = was.Cut; err != nil || was.Stage != layout.Closed || cut == 0 {
			return fmt.Errorf("the leaf is not closed with a cut: %+v, %w", was.Header, err)
		}
		for _, k := range []uint64{first.Key, cut} {
			if err := c.Upsert(k, value(k, 1), soon(rt)); err != nil {
				return err
			}
		}
		if p, err := page(c, left.Self, rt); err != nil || p.Header != was.Header {
			return fmt.Errorf("the leaf has changed: %+v, %w", p.Header, err)
		}
		return nil
	})
	f.client("cn3", f.node(lease), func(c *sherman.Client, rt verbs.Runtime) error {
		defer func() { over = true }()
		_, err := c.Get(first.Key, nil, soon(rt))
		for warm = true; !written; rt.Sleep(time.Microsecond) {
		}
		v, got := c.Get(cut, nil, soon(rt))
		if err = errors.Join(err, got); err != nil || string(v) != string(value(cut, 1)) {
			return fmt.Errorf("Get of key %d returns %x, not %x: %w", cut, v, value(cut, 1), err)
		}
		scanned := []uint64{}
		err = c.Scan(left.Lowest, 2*left.Slots(), func(k uint64, v []byte) bool {
			if n := uint64(len(scanned)); n > 0 && k <= scanned[n-1] || k == cut && string(v) != string(value(k, 1)) {
				t.Errorf("a scan returns %x for key %d, after %d", v, k, scanned)
			}
			scanned = append(scanned, k)
			return true
		}, soon(rt))
		if !slices.Contains(scanned, cut) {
			t.Errorf("a scan does not return key %d: %d", cut, scanned)
		}
		return err
	})
	f.run()
	f.client("cn2", f.node(lease), func(c *sherman.Client, rt verbs.Runtime) error {
		_, err := whole(c, rt, -1)
		return err
	})
	f.run()
}

// page reads a page of the tree.
func page(c *sherman.Client, a layout.Addr, rt verbs.Runtime) (p layout.Page, err error) {
	b := make([]byte, c.Super().Shape.Page)
	if err = c.ReadPage(a, b, soon(rt)); err == nil {
		err = p.Parse(c.Super().Shape, b)
	}
	return p, err
}

// unnamed returns the leaf that no page of the level above names, and the leaf before it.
func unnamed(c *sherman.Client, rt verbs.Runtime) (left, right layout.Page, err error) {
	a, err := c.Root(soon(rt))
	var named []layout.Addr
	for err == nil && a != 0 {
		var p layout.Page
		switch p, err = page(c, a, rt); {
		case err != nil:
		case p.Level > 1:
			a = p.Leftmost
		default:
			named = append(named, p.Leftmost)
			for _, i := range p.Order(nil) {
				r, _ := p.Slot(int(i))
				named = append(named, r.Child())
			}
			a = p.Sibling
		}
	}
	for a = named[0]; err == nil && a != 0; a = right.Sibling {
		left = right
		if right, err = page(c, a, rt); err == nil && !slices.Contains(named, a) {
			return left, right, nil
		}
	}
	return left, right, fmt.Errorf("each leaf has a separator: %w", err)
}
